// Agents, and who prunes for them.
import { importButton } from "./agent.js";
import { api } from "./api.js";
import { busy, empty, enc, h, heading, toast } from "./dom.js";
import { tablePanel } from "./preferences.js";
import { loadOptions, loadSettings } from "./settings.js";

export async function agentsView({ main }) {
	const settings = await loadSettings();
	const options = await loadOptions(settings);
	const list = h("ul.cards.grid", { "aria-label": "Agents" }, options.agents.map(agentCard));
	main.append(
		heading("Agents", importButton(), h("a.button.primary", { href: "#/agents/+new" }, "New agent")),
		options.agents.length ? list : empty("No agent yet", "An agent is a model with instructions and tools. Chat programs see it as a model of its own."),
		tablePanel("compaction", settings, options, { title: "When a chat fills its window", only: ["pruning_agent"],
			about: [h("a", { href: "#/settings/compaction" }, "More about compaction")] }));
}

function agentCard(agent) {
	const box = h("input", { type: "checkbox", role: "switch", id: `on-${agent.id}`, "aria-label": `${agent.name || agent.id} is offered to clients` });
	box.checked = agent.enabled;
	const words = h("span", { "aria-hidden": "true" }, agent.enabled ? "On" : "Off");
	box.addEventListener("change", () => busy(box, async () => {
		const wanted = box.checked;
		try {
			await api(`/api/agents/${enc(agent.id)}`, { method: "PATCH", body: { enabled: wanted } });
			words.textContent = wanted ? "On" : "Off";
			toast(wanted ? "Offered from the next request on." : "No longer offered.");
		} catch (error) {
			box.checked = !wanted;
			throw error;
		}
	}));
	const tools = [...agent.tools, ...agent.mcp, ...agent.agent_tools];
	return h("li.card",
		h("div.card-head", h("h2", h("a.card-title", { href: `#/agents/${enc(agent.id)}` }, agent.name || agent.id)), h("label.switch", words, box)),
		h("p.about", [agent.name && agent.id, agent.model].filter(Boolean).join(" · ")),
		agent.problem && h("p.trouble", agent.problem),
		agent.instructions && h("p.excerpt", agent.instructions.slice(0, 200)),
		tools.length ? h("p.badges", tools.map((name) => h("span.badge", name))) : null);
}
