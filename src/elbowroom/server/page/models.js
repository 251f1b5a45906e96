// Providers: whether they answer, their models, and where each window's size is known from.
import { act, empty, h, heading, number, toast, trouble } from "./dom.js";
import { WORDS } from "./hints.js";
import { modelBadges } from "./pick.js";
import { loadProviders, loadSettings, saveSettings } from "./settings.js";
import { editor } from "./records.js";

// The light of the header: what can be told of all providers in a few words.
export async function showLight(element, text) {
	let state = "off", words = "No provider answers";
	try {
		const providers = await loadProviders({ quiet: true });
		const up = providers.filter(({ reachable }) => reachable);
		const loaded = up.flatMap(({ models }) => models).filter((model) => model.state === "loaded").length;
		if (up.length) {
			state = up.length === providers.length ? "on" : "part";
			const named = up.map(({ id, kind }) => (kind === "lmstudio" ? "LM Studio" : id)).join(", ");
			words = loaded ? `${named}, ${loaded} loaded` : named;
			if (state === "part") words += `; ${providers.length - up.length} down`;
		} else if (providers.length === 1) words = `${WORDS[providers[0].kind] ?? providers[0].id} does not answer`;
	} catch (error) {
		words = error.status === 401 ? "Token needed" : "elbowroom does not answer";
	}
	element.dataset.state = state;
	text.textContent = words;
}

export async function modelsView({ main }) {
	const place = h("div");
	const again = act("Check again", show);
	main.append(heading("Models", again, h("a.button.primary", { href: "#/models/+new" }, "Add provider")), place);
	async function show() {
		try {
			const providers = await loadProviders();
			place.replaceChildren(...(providers.length ? providers.map(provider) : [empty("No provider", "Add the server that runs your models.")]));
			showLight(document.getElementById("light"), document.getElementById("light-text"));
		} catch (error) {
			place.replaceChildren(trouble(error, show));
		}
	}
	await show();
}

function provider({ id, kind, base_url: address, reachable, error, models, machines }) {
	const state = reachable ? "on" : "off";
	return h("section.panel.provider", { "aria-label": id },
		h("div.card-head",
			h("h2", h("span.dot", { "data-state": state, "aria-hidden": "true" }), id, h("span.offscreen", reachable ? ", answers" : ", does not answer")),
			h("a.button.small.quiet", { href: `#/models/${encodeURIComponent(id)}`, "aria-label": `Edit ${id}` }, "Edit")),
		machines
			? h("ul.plain.machines", { "aria-label": `Machines of ${id}` }, machines.map(machineRow))
			: h("p.about", `${WORDS[kind] ?? kind} at `, h("code", address), reachable ? " answers." : " does not answer."),
		error && h("p.trouble", error),
		models.length ? h("ul.plain.models", { "aria-label": `Models of ${id}` }, models.map(modelRow)) : reachable && h("p.about", "It offers no model."));
}

// One of several machines: whether it answers, and how full the windows of its models are.
const machineRow = ({ base_url: address, reachable, error, models }) => h("li",
	h("span.dot", { "data-state": reachable ? "on" : "off", "aria-hidden": "true" }), h("code", address),
	h("span.badges", h("span.badge", reachable ? "answers" : "left alone"), models.map((model) => h("span.badge", `${model.id}: ${number(model.held)} of ${number(model.window)} held${model.waiting ? `, ${model.waiting} waiting` : ""}`))),
	error && h("p.trouble", error));

const modelRow = (model) => h("li", h("strong", model.id), h("span.badges", modelBadges(model)), model.window_source && h("p.help", `Window known from ${model.window_source}`));

// The editor for a row of a list in the settings: of providers, or of MCP servers.
export function rowView({ table, definition, key, back, what, gone }) {
	return async ({ main, id }) => {
		const settings = await loadSettings();
		const isNew = id === "+new";
		const row = isNew ? {} : (settings.values[table] ?? []).find((each) => each[key] === id);
		if (!row) throw new Error(`There is no ${what} ${id}.`);
		const leave = (hash) => { location.hash = hash; };
		const put = (named, value) => saveSettings({ [table]: { [named]: value } });
		editor({
			main, back, title: isNew ? `New ${what}` : id,
			form: {
				schema: settings.schema.$defs[definition], root: settings.schema, name: table, values: row, isNew, idKey: key,
				verb: isNew ? "Add" : "Save",
				onsubmit: async (patch) => {
					if (isNew && !patch[key]) throw Object.assign(new Error(""), { fields: [{ path: key, message: "This is needed." }] });
					if (isNew && (settings.values[table] ?? []).some((each) => each[key] === patch[key])) throw Object.assign(new Error(""), { fields: [{ path: key, message: "There is one of this name." }] });
					await put(isNew ? patch[key] : id, patch);
					leave(back[0]);
				},
			},
			remove: !isNew && { title: `Delete ${id}?`, text: gone, run: async () => { await put(id, null); toast("Deleted."); leave(back[0]); } },
		});
	};
}
