import { App, MarkdownView, Modal } from "obsidian-test-mocks/obsidian";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Chat } from "../src/chat/chat.js";
import { itemOf } from "../src/chat/items.js";
import { lastNote } from "../src/notes/attachments.js";
import { addPromptCommands, promptNotes } from "../src/notes/prompts.js";
import { asMarkdown, insertInNote, saveAsNote, writable } from "../src/notes/saving.js";
import { harmless } from "../src/notes/safe_markdown.js";
import { showSources } from "../src/notes/vault_changes.js";
import { pluginFor, serverAt } from "./support.js";

const EVIL = "See\n![a](https://evil.example/1.png)\n```dataviewjs\nx\n```";
let app;
let asked;
let answer;

/** A vault in which a person answers what is asked about a text as the test says. */
beforeEach(() => {
	app = App.createConfigured__({ files: { "a.md": "", "in/b.md": "", "Prompts/One.md": "1", "Prompts/deep/Two.md": "2", "Promptsx/Three.md": "3" } }).asOriginalType__();
	app.workspace.openLinkText = vi.fn(async () => {});
	app.fileManager.getNewFileParent = () => ({ path: "/" });
	asked = [];
	vi.spyOn(Modal.prototype, "open").mockImplementation(function opened() {
		asked.push(this);
		this.onOpen();
		this.chosen = answer === "harmless" ? harmless(this.text) : answer === "as it is" ? this.text : null;
		this.onClose();
	});
});
afterEach(() => vi.restoreAllMocks());

function noteWith(replaceSelection) {
	return Object.assign(Object.create(MarkdownView.prototype), { file: { basename: "a" }, editor: { getCursor: () => ({ line: 0, ch: 0 }), setCursor: () => {}, replaceSelection } });
}

describe("an answer that would load or run something in a note", () => {
	it.each([["harmless", harmless(EVIL)], ["as it is", EVIL], ["cancel", null]])("is inserted and saved only as the person says: %s", async (what, written) => {
		answer = what;
		const inserted = vi.fn();
		vi.spyOn(app.workspace, "getActiveViewOfType").mockReturnValue(noteWith(inserted));
		await insertInNote(app, EVIL);
		await saveAsNote(app, EVIL, "Evil");
		expect(inserted.mock.calls).toEqual(written === null ? [] : [[written]]);
		const note = app.vault.getFileByPath("Evil.md");
		expect(note ? await app.vault.read(note) : null).toBe(written);
		expect(asked).toHaveLength(2);
	});
	it("is not asked about where its line stood in the note before", async () => {
		const own = "A\n![[Picture.png]]\nB";
		expect(await writable(app, "Better\n![[Picture.png]]\nB", own)).toBe("Better\n![[Picture.png]]\nB");
		expect(asked).toEqual([]);
		answer = "cancel";
		expect(await writable(app, "Better\n![[Other.png]]", own)).toBe(null);
	});
	it("is asked about once only where it is: what is harmless is written at once", async () => {
		await saveAsNote(app, "# Plan\n\nA **bed**.");
		expect(asked).toEqual([]);
		expect(await app.vault.read(app.vault.getFileByPath("Plan.md"))).toBe("# Plan\n\nA **bed**.");
	});
});

it("a whole conversation is a note with links to what went along", () => {
	const chat = new Chat(serverAt("http://127.0.0.1:9"), { model: "writer" });
	chat.items = [itemOf("system", "Be kind."), itemOf("user", '<vault_note path="in/b.md">\nB\n</vault_note>\n\nWhy?'), itemOf("assistant", "Because.")];
	expect(asMarkdown(chat)).toBe("## You\n\nWith [[in/b]]\n\nWhy?\n\n## writer\n\nBecause.\n");
});

it("the note that was used last is found also where another kind of pane was", () => {
	const view = noteWith(() => {});
	vi.spyOn(app.workspace, "getActiveViewOfType").mockReturnValue(null);
	vi.spyOn(app.workspace, "getMostRecentLeaf").mockReturnValue({ view: {} }); // a graph
	vi.spyOn(app.workspace, "getLeavesOfType").mockImplementation((type) => (type === "markdown" ? [{ view }] : []));
	expect(lastNote(app)).toBe(view);
});

it("the notes that an agent has read or found stand below its answer, as far as the vault has them", () => {
	const step = (name, args, result) => ({ id: "1", name, arguments: JSON.stringify(args), state: "completed", result });
	const item = { ...itemOf("assistant", "So."), steps: [
		step("vault_search", { query: "b" }, "2 notes found, best first.\nin/b.md\n  3: a.md is here\nnowhere.md"), step("vault_read", { path: "a" }, "a.md: lines 1-2 of 2"), step("web", { path: "in/b.md" }, ""),
	] };
	const noteLink = vi.fn((parent, path, words) => parent.createEl("a", { text: words }));
	const parent = createDiv();
	showSources({ item, view: { app }, noteLink }, parent);
	expect(noteLink.mock.calls.map(([, path, words]) => [path, words])).toEqual([["in/b.md", "b"], ["a.md", "a"]]);
	showSources({ item: { steps: [] }, view: { app }, noteLink }, parent);
	expect(parent.childElementCount).toBe(0);
});

describe("a person's own prompts", () => {
	it("are the notes of one folder, or none", () => {
		const named = (promptFolder) => promptNotes({ app, preferences: { promptFolder } }).map(({ path }) => path);
		expect(named("Prompts")).toEqual(["Prompts/deep/Two.md", "Prompts/One.md"]);
		expect(named(" /Prompts/ ")).toHaveLength(2);
		expect(named("")).toEqual([]);
	});
	it("are commands, as the notes are now", async () => {
		vi.useFakeTimers();
		const plugin = { ...pluginFor(null), app, commands: new Map(), registerEvent: () => {} };
		Object.assign(plugin, { addCommand: (command) => plugin.commands.set(command.id, command), removeCommand: (id) => plugin.commands.delete(id) });
		app.workspace.onLayoutReady = (begin) => begin();
		addPromptCommands(plugin);
		expect([...plugin.commands.values()].map(({ name }) => name)).toEqual(["Prompt: Two", "Prompt: One"]);
		await app.vault.delete(app.vault.getFileByPath("Prompts/One.md"));
		await app.vault.create("Prompts/New.md", "New");
		await vi.advanceTimersByTimeAsync(1000);
		expect([...plugin.commands.keys()].sort()).toEqual(["prompt-Prompts/New", "prompt-Prompts/deep/Two"]);
		const view = { composer: { write: vi.fn() }, ask: vi.fn() };
		plugin.activateView = async () => view;
		vi.spyOn(app.workspace, "getActiveViewOfType").mockReturnValue(null);
		plugin.commands.get("prompt-Prompts/New").callback();
		await vi.waitFor(() => expect(view.composer.write).toHaveBeenCalledWith("New"));
		vi.useRealTimers();
	});
});
