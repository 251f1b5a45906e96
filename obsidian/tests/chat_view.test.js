import { MarkdownRenderer, MarkdownView } from "obsidian-test-mocks/obsidian";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ChatView } from "../src/view/chat_view.js";
import { ServerError } from "../src/server/server.js";
import { pluginFor, serverAt, serving, until } from "./support.js";

const json = (response, value, status = 200) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
const itemOf = (role, text, more = {}) => ({ id: "", role, text, thought: "", steps: [], status: "complete", at: 1, between: [], recalled: [], marks: [], sent: null, ...more });
let drawn;
let server;
let view;

beforeEach(() => {
	drawn = [];
	vi.spyOn(MarkdownRenderer, "render").mockImplementation(async (_, text, parent, path) => {
		drawn.push(path);
		if (text.includes("BROKEN")) throw new Error("Another plugin failed.");
		parent.append(text);
	});
});
afterEach(() => { void view?.onClose(); server?.close(); vi.restoreAllMocks(); document.body.replaceChildren(); });

/** Opens a chat view whose elbowroom answers as the test says. */
async function opened(answer = (_, response) => json(response, { data: [{ id: "writer" }] })) {
	server = await serving(answer);
	const plugin = pluginFor(serverAt(server.address));
	const leaf = plugin.app.workspace.getLeaf(true);
	view = new ChatView(leaf, plugin);
	document.body.append(view.contentEl);
	await view.onOpen();
	return plugin;
}
async function shows(...items) {
	view.chat.items = items;
	view.draw("items");
	await until(() => view.log.querySelectorAll(".elbowroom-message").length === items.length);
}

describe("the view of a chat", () => {
	it("is open before elbowroom answers, or never does", async () => {
		await opened(() => {});
		expect(view.composer).not.toBe(null);
	});
	it("counts what goes along once it knows for which model", async () => {
		let tell;
		await opened((request, response) => {
			if (request.url.endsWith("input_tokens")) json(response, { input_tokens: 5 });
			else tell = () => json(response, { data: [{ id: "writer" }] });
		});
		view.ask([{ kind: "selected_text", path: "a.md", text: "Some words", tokens: null }]);
		await until(() => tell);
		tell();
		await until(() => view.composer.attachments[0].tokens !== null);
		expect(server.asked.at(-1).body.model).toBe("writer");
	});
	it("shows as text what cannot be drawn, and goes on", async () => {
		await opened();
		await shows(itemOf("user", "Hello"), itemOf("assistant", "A BROKEN answer"));
		await until(() => view.log.textContent.includes("A BROKEN answer"));
		await shows(itemOf("user", "Hello"), itemOf("assistant", "A BROKEN answer"), itemOf("user", "Thanks"));
		await until(() => view.log.textContent.includes("Thanks"));
	});
	it("draws for no note, whose place other plugins would take for that of the text", async () => {
		const plugin = await opened();
		vi.spyOn(plugin.app.workspace, "getMostRecentLeaf").mockReturnValue({ view: Object.assign(Object.create(MarkdownView.prototype), { file: { path: "a.md" } }) });
		await shows(itemOf("assistant", "Hello"));
		await until(() => drawn.length);
		expect(new Set(drawn)).toEqual(new Set([""]));
	});
	it("leaves no timer when it is closed, whatever comes later", async () => {
		let late;
		await opened((_, response) => { late = () => json(response, { error: { message: "No." } }, 500); });
		await until(() => late);
		view.draw("last");
		const stopped = vi.spyOn(window, "clearTimeout");
		await view.onClose();
		expect(stopped).toHaveBeenCalled();
		const timers = vi.spyOn(window, "setTimeout");
		view.chat.missed(new ServerError("It does not answer.", 0));
		view.draw("last");
		expect(timers).not.toHaveBeenCalled();
		late();
	});
	it("keeps a whole answer where something beside it has failed and is tried again", async () => {
		await opened();
		await shows(itemOf("user", "Hello"), itemOf("assistant", "Fine."));
		view.chat.missed(new ServerError("The compaction cannot be taken back.", 409));
		view.problem.find("button").click();
		await until(() => view.chat.problem === null);
		expect(view.chat.items.map(({ text }) => text)).toEqual(["Hello", "Fine."]);
		expect(server.asked.some(({ path }) => path === "/v1/chat/completions")).toBe(false);
	});
	it("keeps a question that waits for elbowroom, whatever is looked at meanwhile", async () => {
		const plugin = await opened((_, response) => json(response, { data: [{ id: "writer" }], id: "conv_1", updated: 1 }));
		const there = view.chat.server;
		view.chat.server = serverAt("http://127.0.0.1:9");
		await view.chat.send("Are you there?");
		await until(() => view.chat.items.at(-1)?.status === "waiting");
		const waiting = view.chat;
		view.begin();
		expect(view.chat).not.toBe(waiting);
		expect(waiting.isClosed).toBe(false);
		waiting.server = there;
		await vi.waitFor(() => expect(server.asked.map(({ path }) => path)).toContain("/v1/chat/completions"), 12_000);
		expect(plugin.preferences.agent).toBe("");
	}, 15_000);
	it("looks again when it is turned to, also from another view of the same conversation", async () => {
		const plugin = await opened();
		const look = vi.spyOn(view.chat, "lookAgain").mockResolvedValue();
		plugin.app.workspace.trigger("active-leaf-change", plugin.app.workspace.getLeaf(true));
		expect(look).not.toHaveBeenCalled();
		plugin.app.workspace.trigger("active-leaf-change", view.leaf);
		expect(look).toHaveBeenCalledTimes(1);
	});
});
