import { beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "obsidian-test-mocks/obsidian";
import { Composer } from "../src/view/composer.js";
import { ChatView } from "../src/view/chat_view.js";

let said;
let taken;
let composer;
let view;

/** A composer whose chat notes what it is given, and takes it or not as the test says. */
beforeEach(() => {
	said = [];
	taken = true;
	const chat = {
		isRunning: false, runsElsewhere: false, queue: [], context: null, model: "writer", problem: null,
		send: vi.fn(async (text) => { said.push(text); return taken; }),
		edit: vi.fn((item, text) => { said.push([item.text, text]); return taken; }),
		begin: vi.fn(), open: vi.fn(async () => {}),
	};
	const app = App.createConfigured__({ files: { "a.md": "A note." } }).asOriginalType__();
	view = { chat, app, window: 0, models: [], keepState: () => {}, letBe: ChatView.prototype.letBe, plugin: { server: { countTokens: async () => 1 }, preferences: { noteContext: "none", agent: "" } } };
	composer = view.composer = new Composer(view, createDiv());
});

const note = { kind: "vault_note", path: "a.md", text: "A note.", tokens: 1 };
async function send(text) {
	composer.input.value = text;
	await composer.send();
}

describe("what was written", () => {
	it.each(["/new", "/compact", "/compact keep the SQL"])("is a command also where a note goes along, which stays: %s", async (command) => {
		composer.take([note]);
		await send(command);
		expect(said).toEqual([command]);
		expect(composer.attachments).toEqual([note]);
		await send("/etc/hosts is what?");
		expect(said[1]).toContain("</vault_note>\n\n/etc/hosts");
	});
	it("comes back where it was not taken, before what was written since", async () => {
		let refuse;
		view.chat.send = () => new Promise((done) => { refuse = () => done(false); });
		composer.take([note]);
		const sending = send("First");
		composer.input.value = "Second";
		refuse();
		await sending;
		expect(composer.input.value).toBe("First\n\nSecond");
		expect(composer.attachments).toEqual([note]);
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
		await ChatView.prototype.show.call(view, "conv_2");
		expect(composer.input.value).toBe("A draft");
		composer.edit({ text: "Asked" });
		ChatView.prototype.begin.call(view);
		expect([composer.input.value, composer.editing]).toEqual(["A draft", null]);
	});
	it("is not lost to a conversation that comes late", async () => {
		let come;
		view.chat.open = () => new Promise((done) => { come = done; });
		const showing = ChatView.prototype.show.call(view, "conv_2");
		composer.input.value = "Typed meanwhile";
		come();
		await showing;
		expect(composer.input.value).toBe("Typed meanwhile");
	});
});
