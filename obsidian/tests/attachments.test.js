import { describe, expect, it } from "vitest";
import { App } from "obsidian-test-mocks/obsidian";
import { folderAttachment, fromDrop, noteAttachment, readNow, withAttachments, withoutAttachments } from "../src/notes/attachments.js";
import { freePath, nameFor } from "../src/notes/saving.js";

const note = { kind: "vault_note", path: "Projects/Plan.md", text: "# Plan\n\nWater.", tokens: 3 };
const dropped = (text) => ({ getData: () => text });

async function vaultWith(files) {
	const app = App.createConfigured__({ files });
	return app.asOriginalType__();
}

describe("what goes along", () => {
	it("is told before the question, and taken apart again", () => {
		const selection = { kind: "selected_text", path: "A \"b\".md", text: "<b>x</b>", tokens: null };
		const text = withAttachments([note, selection], "Why?");
		expect(text).toBe('<vault_note path="Projects/Plan.md">\n# Plan\n\nWater.\n</vault_note>\n\n<selected_text path="A \'b\'.md">\n<b>x</b>\n</selected_text>\n\nWhy?');
		const apart = withoutAttachments(text);
		expect(apart.question).toBe("Why?");
		expect(apart.attachments.map(({ kind, text: content }) => [kind, content])).toEqual([["vault_note", "# Plan\n\nWater."], ["selected_text", "<b>x</b>"]]);
	});
	it.each(["Why?", 'Look: <vault_note path="x">\nNo.\n</vault_note>', "<vault_note>\nx\n</vault_note>", ""])("is nothing in %j", (text) => {
		expect(withoutAttachments(text)).toEqual({ attachments: [], question: text });
	});
});

it("takes no time where blocks begin and never end", () => {
	const begun = performance.now();
	withoutAttachments('<vault_note path="">\n'.repeat(60_000));
	expect(performance.now() - begun).toBeLessThan(1000);
});

describe("what is dropped", () => {
	it.each(["obsidian://open?file=Projects%2FPlan.md", "[[Plan]]", "Projects/Plan.md"])("is a note by %s", async (text) => {
		const app = await vaultWith({ "Projects/Plan.md": "# Plan" });
		const found = await fromDrop(app, dropped(text));
		expect(found.map(({ path, kind }) => [path, kind])).toEqual([["Projects/Plan.md", "vault_note"]]);
	});
	it("is a text where it names nothing", async () => {
		expect(await fromDrop(await vaultWith({}), dropped("Some words"))).toMatchObject([{ kind: "selected_text", text: "Some words" }]);
	});
	it("is refused in words where it is no text", async () => {
		const app = await vaultWith({ "a.pdf": "x" });
		await expect(fromDrop(app, dropped(""))).rejects.toThrow("Drop a note");
		await expect(noteAttachment(app, app.vault.getFileByPath("a.pdf"))).rejects.toThrow("a.pdf is no note");
	});
});

describe("what goes along when a question is sent", () => {
	it("is what notes and folders hold then, each note once, and a selection as it was", async () => {
		const app = await vaultWith({ "in/a.md": "Old", "in/b.md": "B" });
		const note = await noteAttachment(app, app.vault.getFileByPath("in/a.md"));
		const folder = await folderAttachment(app, app.vault.getFolderByPath("in"));
		const selection = { kind: "selected_text", path: "in/a.md", text: "Old", tokens: 1 };
		await app.vault.modify(app.vault.getFileByPath("in/a.md"), "New");
		await app.vault.create("in/c.md", "C");
		const read = await readNow(app, [note, selection, folder]);
		expect(read.map(({ kind, path, text }) => [kind, path, text])).toEqual([
			["vault_note", "in/a.md", "New"], ["selected_text", "in/a.md", "Old"], ["vault_note", "in/b.md", "B"], ["vault_note", "in/c.md", "C"],
		]);
	});
	it("is nothing where a note is gone: a sentence says so", async () => {
		const app = await vaultWith({ "a.md": "A" });
		const note = await noteAttachment(app, app.vault.getFileByPath("a.md"));
		await app.vault.delete(app.vault.getFileByPath("a.md"));
		await expect(readNow(app, [note])).rejects.toThrow("a.md is not in the vault any more");
	});
	it("has pictures as parts of their own, as chats know them", async () => {
		const picture = new File([new Uint8Array([1, 2, 3])], "p.png", { type: "image/png" });
		picture.arrayBuffer = async () => new Uint8Array([1, 2, 3]).buffer; // jsdom has none
		const data = { files: [picture], getData: () => "" };
		const found = await fromDrop(await vaultWith({}), data);
		expect(withAttachments([note, ...found], "What is this?")).toEqual([
			{ type: "text", text: expect.stringMatching(/^<vault_note path="Projects\/Plan.md">[^]*What is this\?$/) },
			{ type: "image_url", image_url: { url: "data:image/png;base64,AQID" } },
		]);
	});
});

describe("an answer as a note", () => {
	it.each([["# A plan: [[b]]/c?\nx", "A plan b c"], ["\n\n", "Answer"], ["..hidden", "hidden"], ["x".repeat(200), "x".repeat(60)]])("has a name that files can have: %j", (text, name) => {
		expect(nameFor(text)).toBe(name);
	});
	it("takes no other note's place", async () => {
		const app = await vaultWith({ "Plan.md": "", "Plan 2.md": "" });
		expect(freePath(app, "/", "Plan")).toBe("Plan 3.md");
	});
});
