import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { App, MarkdownView, Platform } from "obsidian-test-mocks/obsidian";
import { Composer } from "../src/view/composer.js";
import { preferencesFrom } from "../src/settings/preferences.js";
import { ChatView } from "../src/view/chat_view.js";

let said;
let taken;
let composer;
let view;
let app;

/** A composer whose chat notes what it is given, and takes it or not as the test says. */
beforeEach(() => {
	said = [];
	taken = true;
	const chat = {
		isRunning: false, state: "idle", queue: [], dropped: [], changed: vi.fn(), context: null, model: "writer", problem: null,
		send: vi.fn(async (text) => { said.push(text); return taken; }),
		edit: vi.fn((item, text) => { said.push([item.text, text]); return taken; }),
		compact: vi.fn(async () => taken), stop: vi.fn(async () => {}), unsay: vi.fn(async () => taken), load: vi.fn(async () => {}),
	};
	app = App.createConfigured__({ files: { "a.md": "A note.", "in/Garden plan.md": "Peas.", "in/b.md": "B.", "Prompts/Shorter.md": "---\na: 1\n---\nMake it shorter." } }).asOriginalType__();
	const plugin = { app, server: { countTokens: async () => 1 }, preferences: preferencesFrom(null) };
	view = { chat, app, window: 0, models: [], begin: vi.fn(), letBe: ChatView.prototype.letBe, plugin, newChat: vi.fn(() => chat), use: vi.fn() };
	composer = view.composer = new Composer(view, document.body.createDiv());
});
afterEach(() => { document.body.replaceChildren(); Object.assign(Platform, { isMobile: false }); });

const note = { kind: "vault_note", path: "a.md", text: "A note.", tokens: 1 };
async function send(text) {
	composer.input.value = text;
	await composer.send();
}

describe("a picture", () => {
	it.each(["paste", "drop"])("shows its tokens, as elbowroom counts it: %s", async (way) => {
		view.plugin.server.countTokens = async (model, [{ content }]) => (content === "." ? 8 : content[0].image_url ? 300 : 0);
		const picture = new File([new Uint8Array([1])], "p.png", { type: "image/png" });
		picture.arrayBuffer = async () => new Uint8Array([1]).buffer; // jsdom has none
		const data = { files: [picture], getData: () => "" };
		const event = Object.assign(new Event(way, { cancelable: true }), { clipboardData: data, dataTransfer: data });
		(way === "paste" ? composer.input : composer.element).dispatchEvent(event);
		await vi.waitFor(() => expect(composer.chips.textContent).toContain("p.png293 tokens"));
	});
});

describe("what was written", () => {
	it.each(["/new", "/NEW", "/Compact", "/compact keep the SQL"])("is a command also where a note goes along, which stays: %s", async (command) => {
		composer.take([note]);
		await send(command);
		expect(view.begin.mock.calls.length + view.chat.compact.mock.calls.length).toBe(1);
		expect(composer.attachments).toEqual([note]);
		await send("/etc/hosts is what?");
		expect(said[0]).toContain("</vault_note>\n\n/etc/hosts");
	});
	it("comes back where it was not taken, before what was written since", async () => {
		let refuse;
		view.chat.send = () => new Promise((done) => { refuse = () => done(false); });
		composer.take([note]);
		const sending = send("First");
		await vi.waitFor(() => expect(refuse).toBeDefined());
		composer.input.value = "Second";
		refuse();
		await sending;
		expect(composer.input.value).toBe("First\n\nSecond");
		expect(composer.attachments).toEqual([note]);
	});
	it("is shown where it waited for an answer that was stopped, and can be written again", () => {
		view.chat.dropped = [{ id: "q0", message: { role: "user", content: "Also this." } }];
		composer.input.value = "And that.";
		composer.show();
		expect(composer.waiting.textContent).toContain("Not said, since the answer was stopped: Also this.");
		composer.waiting.querySelector("[aria-label='Write it again']").click();
		expect(composer.input.value).toBe("Also this.\n\nAnd that.");
		expect(view.chat.dropped).toEqual([]);
		expect(view.chat.changed).toHaveBeenCalledWith("state");
	});
	it("stays while a message is edited, and comes back after it", async () => {
		composer.take([note]);
		composer.input.value = "A draft";
		composer.edit({ text: "Asked" });
		expect(composer.input.value).toBe("Asked");
		composer.edit({ text: "Another" });
		composer.letBe();
		expect([composer.input.value, composer.attachments]).toEqual(["A draft", [note]]);
		composer.edit({ text: "Asked" });
		await send("In other words");
		expect(said).toEqual([["Asked", "In other words"]]);
		expect([composer.input.value, composer.attachments, composer.editing]).toEqual(["A draft", [note], null]);
	});
	it("stays where a message cannot be edited now", async () => {
		taken = false;
		composer.edit({ text: "Asked" });
		await send("In other words");
		expect(composer.input.value).toBe("In other words");
		expect(composer.editing).toEqual({ text: "Asked" });
	});
	it("goes into another conversation, but not the message that was edited", async () => {
		composer.input.value = "A draft";
		await ChatView.prototype.letBe.call(view);
		expect(composer.input.value).toBe("A draft");
		composer.edit({ text: "Asked" });
		ChatView.prototype.letBe.call(view);
		expect([composer.input.value, composer.editing]).toEqual(["A draft", null]);
	});
	it("is said once, also where it is sent twice at once", async () => {
		composer.input.value = "Once";
		await Promise.all([composer.send(), composer.send()]);
		expect(said).toEqual(["Once"]);
	});
	it("comes back, where it waited for an answer and is taken back, with the notes that went along", async () => {
		composer.input.value = "Also this";
		const row = composer.waitingRow({ id: "q1", message: { role: "user", content: '<vault_note path="a.md">\nA note.\n</vault_note>\n\nAnd that?' } });
		row.querySelector("button").click();
		await vi.waitFor(() => expect(composer.input.value).toBe("And that?\n\nAlso this"));
		expect(composer.attachments.map(({ path }) => path)).toEqual(["a.md"]);
	});
	it("is sent by Enter on a computer; on a phone Enter makes a line", () => {
		const press = () => {
			const event = new KeyboardEvent("keydown", { key: "Enter", cancelable: true });
			composer.input.dispatchEvent(event);
			return event.defaultPrevented;
		};
		expect(press()).toBe(true);
		Platform.isMobile = true;
		expect(press()).toBe(false);
	});
	it("has the keys once an answer is stopped", async () => {
		await composer.stop();
		expect(document.activeElement).toBe(composer.input);
	});
});

describe("a note that goes along", () => {
	/** Types at the end of the input, as a person does. */
	function type(text) {
		composer.input.value += text;
		composer.input.setSelectionRange(composer.input.value.length, composer.input.value.length);
		composer.input.dispatchEvent(new Event("input"));
	}
	const press = (key) => composer.input.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
	const offered = () => [...composer.element.querySelectorAll(".elbowroom-offer")].map((row) => row.firstChild.textContent);

	it.each(["Look at @gard", "Look at [[Garden p"])("is named while a question is written: %s", async (text) => {
		type(text);
		expect(offered()).toEqual(["Garden plan"]);
		press("Enter");
		expect(composer.input.value).toBe("Look at [[Garden plan]] ");
		await vi.waitFor(() => expect(composer.attachments.map(({ path }) => path)).toEqual(["in/Garden plan.md"]));
		expect(said).toEqual([]);
		expect(offered()).toEqual([]);
	});
	it("may be all notes of a folder, as they are when they are sent", async () => {
		type("@in");
		expect(offered()).toContain("in/");
		while (composer.element.querySelector("[aria-selected=true]").firstChild.textContent !== "in/") press("ArrowDown");
		press("Tab");
		await vi.waitFor(() => expect(composer.attachments).toHaveLength(1));
		await app.vault.modify(app.vault.getFileByPath("in/b.md"), "B, newer.");
		await send("What is in it?");
		expect(said[0]).toContain("B, newer.");
		expect(said[0]).toContain("Peas.");
	});
	it("offers nothing for an address of mail, and goes away by Escape", () => {
		type("anna@gard");
		expect(offered()).toEqual([]);
		composer.input.value = "";
		type("@");
		expect(offered().length).toBeGreaterThan(2);
		press("Escape");
		expect(offered()).toEqual([]);
	});
	it("is read when the question is sent, not when the input is turned to, and again for the next one", async () => {
		view.plugin.preferences.noteContext = "note";
		const leaf = app.workspace.getLeaf(true);
		const shown = Object.assign(Object.create(MarkdownView.prototype), { file: app.vault.getFileByPath("a.md"), editor: { getValue: () => now, getSelection: () => "" } });
		let now = "Before.";
		vi.spyOn(app.workspace, "getActiveViewOfType").mockReturnValue(shown);
		vi.spyOn(app.workspace, "getLeavesOfType").mockReturnValue([Object.assign(leaf, { view: shown })]);
		await composer.showByItself();
		expect(composer.chips.textContent).toContain("a");
		now = "At the first question.";
		await send("First?");
		now = "At the second question.";
		await send("Second?");
		expect(said[0]).toContain("At the first question.");
		expect(said[1]).toContain("At the second question.");
		composer.chips.querySelector("button")?.click();
		await send("Third?");
		expect(said[2]).toBe("Third?");
	});
	it("may be a prompt of the person's own, behind a slash", async () => {
		type("/sho");
		expect(offered()).toEqual(["/Shorter"]);
		press("Enter");
		await vi.waitFor(() => expect(composer.input.value).toBe("Make it shorter."));
	});
	it("is answered from the vault where an agent can, and stays where none can", async () => {
		view.askVault = vi.fn(async () => false);
		await send("/vault When is the ferry?");
		expect([said, composer.input.value]).toEqual([[], "When is the ferry?"]);
		view.askVault = vi.fn(async () => true);
		await send("/vault When is the ferry?");
		expect(said).toEqual(["When is the ferry?"]);
	});
	it("keeps no key from a command that is typed whole", async () => {
		type("/compact");
		expect(offered()).toEqual([]);
		press("Enter");
		await vi.waitFor(() => expect(view.chat.compact).toHaveBeenCalledWith(""));
	});
});
