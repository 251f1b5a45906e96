import { afterEach, describe, expect, it, vi } from "vitest";
import { Editor, MarkdownRenderer, Modal } from "obsidian-test-mocks/obsidian";
import { addEditorCommands, putInPlace } from "../src/notes/editor_commands.js";
import { harmless } from "../src/notes/safe_markdown.js";
import { PreviewModal } from "../src/notes/preview_modal.js";
import { finish, pluginFor, serverAt, serving, sse, until, word } from "./support.js";

const FILE = { path: "a.md" };
let server;
let opened;
vi.spyOn(MarkdownRenderer, "render").mockImplementation(async (_, text, parent) => { parent.append(text); });
afterEach(() => { opened?.onClose(); server?.close(); });

function editorWith(text, from = 0, to = from) {
	const editor = new Editor();
	editor.setValue(text);
	editor.setSelection(editor.offsetToPos(from), editor.offsetToPos(to));
	return editor.asOriginalType__();
}

/** Returns the commands of a plugin by their ids, and what its editor menu shows. */
function commandsOf() {
	const commands = {};
	let fill;
	const plugin = pluginFor(null);
	Object.assign(plugin, { addCommand: (command) => { commands[command.id] = command; }, registerEvent: () => {}, activateView: vi.fn(async () => plugin.view), view: { ask: vi.fn() } });
	vi.spyOn(plugin.app.workspace, "on").mockImplementation((_, called) => { fill = called; });
	addEditorCommands(plugin);
	const menuOf = (editor) => {
		const titles = [];
		const item = { setTitle: (title) => { titles.push(title); return item; }, setIcon: () => item, onClick: () => item };
		fill({ addItem: (make) => make(item) }, editor, { file: FILE });
		return titles;
	};
	return { plugin, commands, menuOf };
}

function placeIn(editor, more = {}) {
	const info = { file: FILE };
	return { editor, info, file: FILE, from: editor.getCursor("from"), to: editor.getCursor("to"), text: editor.getSelection(), isBefore: false, ...more };
}

describe("the commands", () => {
	it("are there only where there is a text for them, and have no hotkeys", () => {
		const { commands, menuOf } = commandsOf();
		const there = (editor) => Object.values(commands).filter((command) => command.editorCheckCallback(true, editor, { file: FILE })).map(({ id }) => id);
		expect(there(editorWith("one two", 0, 3))).toEqual(["rewrite-selection", "summarise-selection", "ask-about-selection", "continue-writing"]);
		expect(there(editorWith("one two", 3))).toEqual(["continue-writing"]);
		expect(there(editorWith("  \none", 2))).toEqual([]);
		expect(there(editorWith("  \none", 0, 2))).toEqual([]);
		expect(menuOf(editorWith("one two", 3))).toEqual(["Continue writing"]);
		expect(Object.values(commands).some((command) => "hotkeys" in command)).toBe(false);
	});
	it("take a selection to the chat, with the note that it is of", async () => {
		const { plugin, commands } = commandsOf();
		commands["ask-about-selection"].editorCheckCallback(false, editorWith("one two", 0, 3), { file: FILE });
		await until(() => plugin.view.ask.mock.calls.length);
		expect(plugin.view.ask.mock.calls).toEqual([[[{ kind: "selected_text", path: "a.md", text: "one", tokens: null }]]]);
	});
});

describe("an accepted text", () => {
	it("takes the selection's place in one step, which one undo takes back", () => {
		const editor = editorWith("one two three", 4, 7);
		const step = vi.spyOn(editor, "transaction");
		expect(putInPlace(placeIn(editor), "2")).toBe(true);
		expect(editor.getValue()).toBe("one 2 three");
		expect(step).toHaveBeenCalledTimes(1);
	});
	it("finds a selection that has moved meanwhile", () => {
		const editor = editorWith("one two three", 4, 7);
		const place = placeIn(editor);
		editor.setValue("A line above.\none two three");
		expect(putInPlace(place, "2")).toBe(true);
		expect(editor.getValue()).toBe("A line above.\none 2 three");
	});
	it.each(["one TWO three", "zero two, or two"])("changes nothing where the selection is gone or stands twice: %s", (now) => {
		const editor = editorWith("one two three", 4, 7);
		const place = placeIn(editor);
		editor.setValue(now);
		expect(putInPlace(place, "2")).toBe(false);
		expect(editor.getValue()).toBe(now);
	});
	it("goes into no other note that the editor shows meanwhile", () => {
		const editor = editorWith("one two three", 4, 7);
		expect(putInPlace(placeIn(editor, { file: { path: "b.md" } }), "2")).toBe(false);
	});
	it("continues after what stood before the cursor, wherever that is now", () => {
		const editor = editorWith("one two", 7);
		const place = placeIn(editor, { text: "one two", isBefore: true });
		editor.setValue("New. one two");
		expect(putInPlace(place, " three")).toBe(true);
		expect(editor.getValue()).toBe("New. one two three");
	});
});

describe("the preview", () => {
	const TASK = { id: "rewrite-selection", name: "Rewrite selection", icon: "pencil", order: "Rewrite the text.", asksHow: true };
	const saysWords = (...words) => (request, response) => {
		if (request.url === "/v1/chat/completions") response.writeHead(200, { "Content-Type": "text/event-stream" }).end(sse(...words.map(word), finish(), "[DONE]"));
		else response.end("{}");
	};
	async function previewOf(answer, editor = editorWith("one two three", 4, 7)) {
		server = await serving(answer);
		const plugin = pluginFor(serverAt(server.address), { agent: "writer" });
		const modal = opened = new PreviewModal(plugin, TASK, placeIn(editor));
		modal.onOpen();
		return { modal, editor, state: () => modal.state.textContent };
	}

	it("streams in a chat that is kept nowhere, and changes the note only when it is accepted", async () => {
		const { modal, editor } = await previewOf(saysWords("zw", "ei"));
		await until(() => !modal.accepter.disabled && modal.stopper.disabled);
		expect(editor.getValue()).toBe("one two three");
		const asked = server.asked.find(({ path, method }) => path === "/v1/chat/completions" && method === "POST");
		expect(asked.headers["x-conversation-id"]).toMatch(/^local:/);
		expect(asked.body.model).toBe("writer");
		expect(asked.body.messages[0].content).toContain(">\ntwo\n</selected_text>");
		await modal.accept();
		expect(editor.getValue()).toBe("one zwei three");
	});
	it("offers the text for the cursor where the note has changed, and loses nothing", async () => {
		const { modal, editor, state } = await previewOf(saysWords("zwei"));
		await until(() => !modal.accepter.disabled && modal.stopper.disabled);
		editor.setValue("Another text. ");
		editor.setCursor({ line: 0, ch: 14 });
		await modal.accept();
		expect(editor.getValue()).toBe("Another text. ");
		expect(state()).toContain("The note has changed there meanwhile");
		await modal.insert();
		expect(editor.getValue()).toBe("Another text. zwei");
	});
	it.each([["\ntwo \n", "one\nzwei \nthree"], ["two", "onezweithree"]])("keeps the edges of what was selected: %j", async (selected, now) => {
		const editor = editorWith(`one${selected}three`, 3, 3 + selected.length);
		const { modal } = await previewOf(saysWords("\nzwei\n\n"), editor);
		await until(() => !modal.accepter.disabled && modal.stopper.disabled);
		await modal.accept();
		expect(editor.getValue()).toBe(now);
	});
	it("shows the text as it will be written, and asks before it writes what would load or run something", async () => {
		const { modal, editor } = await previewOf(saysWords("![](https://evil.example/1.png) <%* x %>"));
		await until(() => !modal.accepter.disabled && modal.stopper.disabled);
		expect(modal.written.textContent).toBe("![](https://evil.example/1.png) <%* x %>");
		const open = vi.spyOn(Modal.prototype, "open").mockImplementation(function opened() { this.onOpen(); asked.push(this); });
		const asked = [];
		const refused = modal.accept();
		asked.pop().onClose();
		await refused;
		expect(editor.getValue()).toBe("one two three");
		const taken = modal.accept();
		expect(asked[0].contentEl.textContent).toContain("![](https://evil.example/1.png)");
		asked[0].chosen = harmless(asked[0].text);
		asked[0].onClose();
		await taken;
		expect(editor.getValue()).toBe("one !\u2060[](https://evil.example/1.png) <\u2060%* x %> three");
		open.mockRestore();
	});
	it("offers each part of a change, and writes those that are taken", async () => {
		const text = "Keep this. Old one. Keep that. Old two.";
		const { modal, editor } = await previewOf(saysWords("Keep this. New one. Keep that. New two."), editorWith(text, 0, text.length));
		await until(() => modal.list.children.length === 2);
		expect([...modal.list.querySelectorAll("ins")].map(({ textContent }) => textContent)).toEqual(["New one.", "New two."]);
		const box = modal.list.querySelector("input");
		box.checked = false;
		box.dispatchEvent(new Event("change"));
		expect(modal.written.textContent).toBe("Keep this. Old one. Keep that. New two.");
		await modal.accept();
		expect(editor.getValue()).toBe("Keep this. Old one. Keep that. New two.");
	});
	it("shows the newest text, whichever was drawn last", async () => {
		const late = [];
		const { modal } = await previewOf(saysWords("zwei"));
		await until(() => modal.stopper.disabled && modal.shown.textContent === "zwei");
		vi.spyOn(MarkdownRenderer, "render").mockImplementationOnce((_, __, parent) => new Promise((done) => { late.push(() => { parent.append("old"); done(); }); }));
		modal.draw();
		modal.draw();
		late[0]();
		await until(() => modal.shown.textContent !== "");
		expect(modal.shown.textContent).toBe("zwei");
	});
	it.each(["closed", "left behind by a plugin that is switched off"])("ends its answer when it is %s", async (how) => {
		let isEnded = false;
		const { modal, editor } = await previewOf((request, response) => {
			if (request.url !== "/v1/chat/completions" || request.method !== "POST") return response.end("{}");
			response.on("close", () => { isEnded = true; });
			return response.writeHead(200, { "Content-Type": "text/event-stream" }).write(sse(word("half")));
		});
		await until(() => modal.shown.textContent.includes("half"));
		const drawn = vi.spyOn(modal, "draw");
		if (how === "closed") modal.onClose();
		else {
			vi.spyOn(modal, "close").mockImplementation(() => modal.onClose());
			modal.plugin.events.trigger("unload");
		}
		await until(() => isEnded);
		expect(drawn).not.toHaveBeenCalled();
		expect(editor.getValue()).toBe("one two three");
	});
	it("keeps what came when it is stopped, and asks again", async () => {
		let times = 0;
		const { modal, state } = await previewOf((request, response) => {
			if (request.url !== "/v1/chat/completions" || request.method !== "POST") response.end("{}");
			else if (times++) saysWords("whole")(request, response);
			else response.writeHead(200, { "Content-Type": "text/event-stream" }).write(sse(word("half")));
		});
		await until(() => modal.shown.textContent.includes("half"));
		expect(state()).toBe("Writing…");
		modal.stopper.simulateClick__();
		await until(() => state() === "Stopped.");
		expect(modal.accepter.disabled).toBe(false);
		await modal.run();
		await until(() => modal.shown.textContent === "whole");
	});
	it("says so where nothing answers, or nothing is answered", async () => {
		const { modal, state } = await previewOf(saysWords());
		await until(() => state() === "The model answered nothing. Try again.");
		expect(modal.accepter.disabled).toBe(true);
		server.close();
		await modal.run();
		expect(state()).toMatch(/^elbowroom does not answer at/);
	});
});
