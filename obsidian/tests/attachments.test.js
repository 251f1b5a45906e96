import { describe, expect, it } from "vitest";
import { App } from "obsidian-test-mocks/obsidian";
import { fromDrop, noteAttachment, withAttachments, withoutAttachments } from "../src/notes/attachments.js";
import { freePath, nameFor } from "../src/view/message_view.js";

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
		const app = await vaultWith({ "a.png": "x" });
		await expect(fromDrop(app, dropped(""))).rejects.toThrow("Drop a note");
		await expect(noteAttachment(app, app.vault.getFileByPath("a.png"))).rejects.toThrow("a.png is no note");
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
