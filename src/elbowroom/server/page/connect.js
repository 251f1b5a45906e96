// What to paste into chat programs, under the address that this page was opened at, and whether it works.
import { api } from "./api.js";
import { act, copyable, h, heading, number, panel } from "./dom.js";
import { vaultsPanel } from "./obsidian.js";
import { pairingPanel } from "./pairing.js";
import { askOnce } from "./stream.js";

const here = {
	address: location.origin, token: "none",
	docker: `${location.protocol}//host.docker.internal${location.port ? `:${location.port}` : ""}`,
};

export async function connectView({ main, signal }) {
	const [{ webui, agents, plugins, ...more }, rows] = await Promise.all([
		api("/page/clients.json", { signal }), api("/v1/models", { signal }).then(({ data }) => data, () => [])]);
	main.append(
		heading("Connect"),
		panel("The address",
			h("p.about", "The base URL of programs that speak to OpenAI:"),
			copyable(`${here.address}/v1`, "base address"),
			h("p.about", "API key: your token, if one is set. Models: your agents, and every model as provider/model.")),
		testPanel(rows, signal),
		agentPanel(agents, rows.filter((row) => row.context_length).sort((a, b) => b.window_is.localeCompare(a.window_is)), more),
		panel(webui.name,
			h("p.about", "One command sets it up. The key is an admin’s: Settings, Account, API Keys."),
			copyable(more.webui_command, "command for Open WebUI"),
			h("details", h("summary", "By hand"), h("ol.steps", told(webui, "li")))),
		h("div.view.owners", vaultsPanel(signal, more), pairingPanel(signal)),
		panel("Obsidian: other plugins",
			h("ul.plain.plugins", plugins.map((plugin) => h("li", h("h3", plugin.name), told(plugin))))));
}

// Each text with what to do with it.
const told = ({ parts }, tag = "div", values = here) => parts.map(({ about, label, text }) =>
	h(tag, h("p.about", about), copyable(text.replace(/\$(\w+)/g, (all, word) => values[word] ?? all), label)));

function pick(id, label, rows, onchange) {
	const select = h("select", { id, onchange }, rows.map((row) => h("option", { value: row.id }, row.name && row.name !== row.id ? `${row.name} (${row.id})` : row.id)));
	return [select, h("div.field", h("label", { for: id }, label), select)];
}

// What a coding agent is told.
function agentPanel(agents, known, { command: start, options, share, most, held }) {
	const shown = h("div.form");
	const show = () => {
		const agent = agents.find(({ id }) => id === program.value);
		const { id, context_length: window, window_is } = known.find((row) => row.id === model.value);
		const output = Math.min(Math.floor(window / share), most);
		const values = { ...here, model: JSON.stringify(id).slice(1, -1), window, output, widened: window + output + held };
		const command = { about: "In a terminal, which keeps your file as it was:", label: "command", text: `${start} connect ${agent.id} --write --model "$model"${options}` };
		shown.replaceChildren(
			window_is === "if_loaded" ? h("p.help", `${id} is not loaded; ${number(window)} tokens is the window it had last.`)
				: window_is === "advertised" ? h("p.help", `${number(window)} tokens is the window that you let programs be told.`) : "",
			...told({ parts: agent.is_written ? [command, ...agent.parts] : agent.parts }, "div", values),
			h("p.help", agent.then, " Where a token is set, it stands in the place of none."));
	};
	const [program, programField] = pick("agent", "Program", agents, show);
	const [model, modelField] = pick("agent-model", "Model", known, show);
	if (known.length) show();
	return panel("Coding agents", ...(known.length ? [h("div.test", programField, modelField), shown] : [h("p.about", "Load a model first: they need its window.")]));
}

function testPanel(rows, signal) {
	const [select, field] = pick("test-model", "Model", rows);
	const result = h("ul.checks");
	const run = act("Test", () => test(select.value, result, signal), "primary");
	return panel("Does it work?",
		h("div.test", field, run), h("div", { role: "status" }, result));
}

async function test(model, result, signal) {
	const say = (good, words) => result.append(h("li", { "data-state": good ? "on" : "off" }, h("span.offscreen", good ? "Works: " : "Fails: "), words));
	result.replaceChildren();
	try {
		const { version } = await api("/health", { signal });
		say(true, `elbowroom ${version ?? ""} answers at ${location.host}.`);
	} catch (error) { return say(false, error.message); }
	try {
		const { data } = await api("/v1/models", { signal });
		if (!data.length) return say(false, "No model is offered. Load one in LM Studio, or make an agent.");
		say(true, data.length === 1 ? "One model is offered." : `${data.length} models are offered.`);
	} catch (error) { return say(false, error.message); }
	const waiting = h("li.pending", "Waiting for the first word…");
	result.append(waiting);
	const [good, words] = await streamed(model, signal).then((told) => [true, told], (error) => [false, error.message]);
	waiting.remove();
	return say(good, words);
}

async function streamed(model, signal) {
	const { text, pieces, seconds } = await askOnce({ model, signal, limit: 64, question: (name) => `Say hello in one short sentence. (${name})` });
	return `${model} streams: first word after ${seconds.toFixed(1)} s, ${pieces} ${pieces === 1 ? "piece" : "pieces"}${text.trim() ? `: “${text.trim().slice(0, 120)}”` : ", so far only thoughts"}.`;
}
