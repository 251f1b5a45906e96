import { describe, expect, it } from "vitest";
import { partsOfChange, takenText } from "../src/notes/diff.js";

const changesIn = (before, after) => partsOfChange(before, after).filter((part) => part.before !== part.after).map((part) => [part.before, part.after]);

describe("what a text changes in another", () => {
	it.each([
		["One. Two. Three.", "One. 2. Three.", [["Two. ", "2. "]]],
		["a\nb\nc\n", "a\nc\nd\n", [["b\n", ""], ["", "d\n"]]],
		["same", "same", []],
		["", "new", [["", "new"]]],
		["old", "", [["old", ""]]],
		["Er kam. Sie ging! 他来了。她走了。", "Er kam. Sie blieb! 他来了。她留下。", [["Sie ging! ", "Sie blieb! "], ["她走了。", "她留下。"]]],
		["Costs 3.50 today", "Costs 3.75 today", [["Costs 3.50 today", "Costs 3.75 today"]]],
	])("is told sentence by sentence and line by line: %j", (before, after, changes) => {
		expect(changesIn(before, after)).toEqual(changes);
	});
	it.each([["One. Two.\n\nThree", "Two.\nThree. Four"], ["x".repeat(50), "y. z.\r\n"], [" \n a", "a \n "]])("makes both texts of its parts: %j", (before, after) => {
		const parts = partsOfChange(before, after);
		expect(takenText(parts)).toBe(after);
		for (const part of parts) part.isTaken = false;
		expect(takenText(parts)).toBe(before);
	});
	it("takes no time, however long the texts are", () => {
		const begun = performance.now();
		partsOfChange("A line.\n".repeat(20_000), "Another.\n".repeat(20_000));
		partsOfChange("a".repeat(2_000_000), "b".repeat(2_000_000));
		expect(performance.now() - begun).toBeLessThan(2000);
	});
});
