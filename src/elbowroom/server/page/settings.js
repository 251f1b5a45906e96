// What the server knows of settings, agents, providers and tools; loaded for each view, kept for its forms.
import { api } from "./api.js";
import { banner, h, toast } from "./dom.js";
import { WORDS } from "./hints.js";

export async function loadSettings(options) {
	const settings = await api("/api/settings", options);
	announce(settings);
	return settings;
}

export async function saveSettings(patch) {
	const settings = await api("/api/settings", { method: "PATCH", body: patch });
	announce(settings);
	toast(settings.warnings?.length ? "Saved. What is odd in the settings stands above." : settings.restart_needed?.length ? "Saved. It counts after a restart." : "Saved. It counts from the next request on.");
	return settings;
}

// Says on top of every view what waits for a restart and what is odd about the settings.
function announce({ restart_needed: waiting = [], warnings = [] }) {
	document.body.classList.remove("is-member");
	const words = [];
	if (waiting.length) words.push(h("p", h("strong", "Restart elbowroom to apply: "), waiting.join(", "), "."));
	for (const warning of warnings) words.push(h("p", warning));
	banner(...words);
}

const each = (result) => result.data ?? [];
export const loadAgents = async () => each(await api("/api/agents"));
export const loadProviders = async (options) => each(await api("/api/providers", options));
const loadTools = async () => each(await api("/api/tools"));
const nothing = () => [];

// What there is to choose from in forms; a list that cannot be had is empty, and its field can be typed in.
export async function loadOptions(settings) {
	const [agents, providers, tools] = await Promise.all([loadAgents().catch(nothing), loadProviders().catch(nothing), loadTools().catch(nothing)]);
	const named = ({ id, name }) => (name && name !== id ? `${name} (${id})` : id);
	const models = () => providers.flatMap((provider) => (provider.models ?? []).filter(({ kind }) => kind !== "embedding").map((model) => ({ ...model, provider: provider.id })));
	return {
		agents, providers,
		tools: () => tools.map(({ name, description }) => [name, name, description]),
		otherAgents: (values) => agents.filter(({ id }) => id !== values?.id).map((agent) => [agent.id, named(agent)]),
		mcp: () => (settings.values.mcp_servers ?? []).map(({ name }) => [name, name]),
		pruners: () => [["same", "Same as current agent"], ...agents.map((agent) => [agent.id, agent.enabled ? named(agent) : `${named(agent)}, off`, !agent.enabled])],
		models, vault: settings.values.vault,
		...(providers.length ? { providers: () => providers.map(({ id, kind }) => [id, WORDS[kind] && WORDS[kind] !== id ? `${id} (${WORDS[kind]})` : id]) } : {}),
	};
}
