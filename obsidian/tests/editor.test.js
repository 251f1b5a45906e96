import { describe, expect, it, vi } from "vitest";
import { putInPlace } from "../src/editor_commands.js";

function editorWith(text) {
	return { text, getRange: ({ ch: from }, { ch: to }) => text.slice(from, to), transaction: vi.fn() };
}
const at = (ch) => ({ line: 0, ch });

describe("an accepted text", () => {
	it("takes the selection's place in one transaction", () => {
		const editor = editorWith("one two three");
		expect(putInPlace({ editor, from: at(4), to: at(7), text: "two", isBefore: false }, "2")).toBe(true);
		expect(editor.transaction.mock.calls).toEqual([[{ changes: [{ from: at(4), to: at(7), text: "2" }] }]]);
	});
	it("changes nothing where the note has changed there meanwhile", () => {
		const editor = editorWith("one TWO three");
		expect(putInPlace({ editor, from: at(4), to: at(7), text: "two", isBefore: false }, "2")).toBe(false);
		expect(editor.transaction).not.toHaveBeenCalled();
	});
	it("continues only what still stands before the cursor", () => {
		const editor = editorWith("one two");
		expect(putInPlace({ editor, from: at(7), to: at(7), text: "one two", isBefore: true }, " three")).toBe(true);
		expect(putInPlace({ editor, from: at(7), to: at(7), text: "one 2", isBefore: true }, " three")).toBe(false);
	});
});
