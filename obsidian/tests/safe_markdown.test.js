import { afterEach, describe, expect, it, vi } from "vitest";
import { followLinks, harmless, riskyLines, safeMarkdown, settledEnd } from "../src/notes/safe_markdown.js";
import { pluginFor } from "./support.js";

const EVIL = "![a](https://evil.example/1.png)";
afterEach(() => { document.body.replaceChildren(); vi.restoreAllMocks(); });

describe("what a model writes", () => {
	it.each([
		["behind a block of code whose lines end in another way", `~~~js\r~~~\r${EVIL}\r`],
		["behind a head of properties that looks like code", `---\na: |\n\`\`\`js\n---\n${EVIL}`],
		["behind a block that was never begun", `\`\`\`\nx\n\`\`\`\n${EVIL}`],
	])("shows no picture %s", (_, text) => {
		expect(safeMarkdown(text)).not.toContain("![");
	});
	it.each(["[^1]: ```dataviewjs\n    x\n    ```", "> - ~~~ dataviewjs\n", "1. ```DataviewJS\nx", "\r```dataviewjs\r```"])("names no language that a plugin may run: %j", (text) => {
		expect(safeMarkdown(text).toLowerCase()).not.toContain("dataviewjs");
	});
	it.each(["`= 1`", "``$= 1``", "` jsx-<A/>`", "`INPUT[text:a]`", "`BUTTON[delete]`"])("has no code in a line that a plugin may run: %j", (text) => {
		expect(safeMarkdown(text)).toMatch(/`\u2060/);
	});
	it.each(["<%+ app.vault %>", "<%-* x %>", "```\n<%~+ x %>\n```"])("has no command of a template: %j", (text) => {
		expect(safeMarkdown(text)).not.toContain("<%");
	});
	it.each(["$\\style{background:url(https://evil.example)}{x}$", "$$\\href{obsidian://x}{y}$$", "$\\bbox[background:url(x)]{y}$"])("has no formula that loads or leads anywhere: %j", (text) => {
		expect(safeMarkdown(text)).not.toMatch(/\\(style|href|bbox)/);
	});
	it("stays as it is where it is harmless", () => {
		const text = "# A *title*\n\n- [ ] `npm ci`\n\n```js\nconst a = <b>![0]</b>;\n```\n$\\frac{1}{2}$ [a](https://b.example)";
		expect(safeMarkdown(text)).toBe(text);
	});
	it("takes no time, however long its lines are", () => {
		const begun = performance.now();
		for (const piece of ["a", " ", "`", "<", "- ", "> ", "1", "\\", "![", "` ", "~~~ "]) safeMarkdown(piece.repeat(300_000));
		expect(performance.now() - begun).toBeLessThan(3000);
	});
});

describe("what is written into a note", () => {
	it.each([
		EVIL, "![[Secret]]", "<iframe src=https://evil.example></iframe>", "<img src=x>", "```dataviewjs\ndv.pages()\n```", "`= this.file`", "<% tp.file.move() %>",
		"```js\n<%* x %>\n```", "[Click](obsidian://advanced-uri?eval=1)", "[a]: obsidian://x", "[Click](<javascript:x>)",
	])("is asked for where it would load or run something, and does neither once it is harmless: %j", (text) => {
		const around = `Before\n\n${text}\n\nAfter [a](https://b.example) [[Note]]`;
		const risky = riskyLines(around);
		expect(risky.length).toBeGreaterThan(0);
		expect(text).toContain(risky[0]);
		expect(riskyLines(harmless(around))).toEqual([]);
		expect(harmless(around).replaceAll("\u2060", "").length).toBeGreaterThan(around.length - 15);
	});
	it.each(["# Plan\n\n- [ ] a\n\n| a | b |\n|---|---|\n| 1 | 2 |", "a < b and b > c", "```js\nif (a <b) c();\n```", "[a](https://b.example) [[Note]] `x = 1`", "Dear,\r\nyou\r\n"])("is written as it is where it is harmless: %j", (text) => {
		expect(riskyLines(text)).toEqual([]);
	});
});

describe("a text that is being written", () => {
	it.each([
		["One.", ""], ["One.\n\nTwo", "One.\n\n"], ["One.\n\n```js\na\n\nb", "One.\n\n"], ["```js\na\n\nb\n```\n\nc", "```js\na\n\nb\n```\n\n"],
		["$$\na\n\nb", ""], ["---\na: 1\n\n", ""], ["> ```\n> a\n\nb\n\n", ""], ["", ""],
	])("is settled up to its last paragraph that has ended: %j", (text, settled) => {
		expect(text.slice(0, settledEnd(text))).toBe(settled);
	});
});

describe("a link in what a model writes", () => {
	/** Clicks a link; returns whether the window may follow it, and which notes were opened. */
	function clicked(attributes, kind = "click") {
		const { app } = pluginFor(null);
		const open = vi.spyOn(app.workspace, "openLinkText").mockResolvedValue();
		const parent = document.body.createDiv();
		followLinks(app, parent);
		const inner = vi.fn((event) => event.preventDefault());
		
		const link = parent.createEl("a", { text: "Click", attr: attributes });
		link.addEventListener(kind, inner);
		const event = new MouseEvent(kind, { bubbles: true, cancelable: true, ctrlKey: attributes.ctrl === "1" });
		link.createEl("b").dispatchEvent(event);
		return { isFollowed: inner.mock.calls.length > 0, opened: open.mock.calls };
	}

	it.each(["obsidian://advanced-uri?eval=1", "javascript:alert(1)", "FILE:///etc/passwd", " obsidian://new", "vbscript:x", "\tobs\nidian://x"])("runs nothing: %j", (href) => {
		expect(clicked({ href }).isFollowed).toBe(false);
		expect(clicked({ href }, "auxclick").isFollowed).toBe(false);
	});
	it.each(["https://a.example/", "http://127.0.0.1:2345/", "mailto:a@b.example", "#a-footnote"])("leads to the web and to other places: %s", (href) => {
		expect(clicked({ href }).isFollowed).toBe(true);
	});
	it("opens a note, beside the others where that is asked for", () => {
		expect(clicked({ "class": "internal-link", href: "Plan", "data-href": "Plan#Steps" }).opened).toEqual([["Plan#Steps", "", false]]);
		expect(clicked({ "class": "internal-link", href: "Plan", "data-href": "Plan", ctrl: "1" }).opened).toEqual([["Plan", "", "tab"]]);
	});
	it("is no note where it names a program", () => {
		expect(clicked({ "class": "internal-link", href: "obsidian://x", "data-href": "obsidian://x" })).toEqual({ isFollowed: false, opened: [] });
	});
});
