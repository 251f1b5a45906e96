// What to paste into chat programs, under the address that this page was opened at, and whether it works.
import { api } from "./api.js";
import { act, copyable, h, heading, panel } from "./dom.js";
import { askOnce } from "./stream.js";

const HEADERS = {
	"X-Conversation-Id": "{{CHAT_ID}}",
	"X-Elbowroom-Message-Id": "{{MESSAGE_ID}}",
	"X-Elbowroom-Parent-Id": "{{USER_MESSAGE_PARENT_ID}}",
	"X-Elbowroom-Task": "{{TASK}}",
};
const CAPABILITIES = "DEFAULT_MODEL_METADATA='{\"capabilities\":{\"builtin_tools\":false,\"usage\":true}}'";
const PLUGINS = [
	["Copilot", "/v1", "Add a custom model, provider “OpenAI format”. With “Enable CORS” answers come in one piece."],
	["Smart Composer", "", "Provider “LM Studio”, which adds /v1 by itself. Model IDs are typed by hand."],
	["Smart Composer, OpenAI compatible", "/v1", "Provider “OpenAI compatible”."],
	["AI Providers (for Local GPT)", "/v1", "Provider “OpenAI”."],
	["Smart Connections", "/v1/chat/completions", "Custom API, OpenAI format."],
	["Text Generator", "/v1", "“OpenAI Chat” with its own base path. The custom provider does not stream."],
	["BMO Chatbot", "/v1", "REST API URL, in its settings."],
	["SystemSculpt", "/v1", "Add a custom provider."],
];

export async function connectView({ main, signal }) {
	const root = location.origin;
	const docker = `${location.protocol}//host.docker.internal${location.port ? `:${location.port}` : ""}/v1`;
	main.append(
		heading("Connect"),
		panel("The address",
			h("p.about", "Any program that speaks to OpenAI can speak to elbowroom. This is what it wants as its base URL:"),
			copyable(`${root}/v1`, "base address"),
			h("p.about", "API key: your token if one is set, anything otherwise. Models: your agents, and every model as provider/model.")),
		await testPanel(signal),
		panel("Open WebUI",
			h("ol.steps",
				h("li", "Admin Panel, Settings, Connections: add an OpenAI API connection with this URL.", copyable(`${root}/v1`, "URL for Open WebUI"),
					h("p.help", "In Docker on this computer:"), copyable(docker, "URL for Open WebUI in Docker")),
				h("li", "Edit the connection and paste this as its headers. Chats then keep their gauge, and titles never wait in front of them. Where several people use it, add ", h("code", '"X-Elbowroom-User": "{{USER_ID}}"'), ".", copyable(JSON.stringify(HEADERS, null, 2), "headers")),
				h("li", "Its built-in tools take 5,000 to 6,400 tokens of every chat. With small windows switch them off: Capabilities of the model, or for all in its environment:", copyable(CAPABILITIES, "environment setting")))),
		panel("Obsidian",
			h("p.about", "Each plugin wants the address in a form of its own."),
			h("ul.plain.plugins", PLUGINS.map(([name, path, words]) => h("li", h("h3", name), h("p.about", words), copyable(root + path, `address for ${name}`))))));
}

async function testPanel(signal) {
	const select = h("select", { id: "test-model" });
	const result = h("ul.checks");
	const run = act("Test", () => test(select.value, result, signal), "primary");
	const fill = async () => {
		const { data } = await api("/v1/models", { signal });
		select.replaceChildren(...data.map(({ id, name }) => h("option", { value: id }, name && name !== id ? `${name} (${id})` : id)));
	};
	await fill().catch(() => {});
	return panel("Does it work?",
		h("p.about", "One short question from this browser, whose answer is read as it streams."),
		h("div.test", h("div.field", h("label", { for: "test-model" }, "Model"), select), run), h("div", { role: "status" }, result));
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
