// What a model writes is shown as Markdown, but asks no other server for anything and runs nothing.
import { Notice } from "obsidian";
import { DEFAULTS } from "../settings/preferences.js";

const JOINER = "\u2060"; // takes no place on the screen
const FENCE = /^((?:[ \t]|>|[-*+][ \t]|\d+[.)][ \t]|\[\^[^\]\n]*\]:)*(?:`{3,}|~{3,})[ \t]*)([^\s`]+)([^\n`]*)$/gm;
const RUN_IN_LINE = /`(?=\s*(?:\$?=|jsx-|[A-Z]+\[))/g; // by plugins that read code in a line, such as Dataview
const RUN_BY_TEMPLATES = /<(?=%[-_]?\s*[*~]?\+)/g;
const LOADED_BY_FORMULAS = /\\(?=style|href|class|cssId|bbox|mmlToken|require|csname)/g;
const RUN_BY_LINKS = /(\]\(\s*<?|^\s*\[[^\]\n]+\]:\s*<?|<)([a-z][a-z0-9+.-]*:)/gim;
const LINKS = ["http:", "https:", "mailto:"];
const LANGUAGES = new Set(("asm bash bat bibtex c c++ clojure cmake conf cpp cs csharp css csv dart diff docker dockerfile elixir erlang fortran fsharp gherkin go graphql groovy h haskell html http ini "
	+ "java javascript jinja js json json5 jsonc jsx julia kotlin latex less lisp log lua makefile markdown matlab md nginx nix objectivec ocaml pascal perl php plaintext powershell properties protobuf ps1 "
	+ "py python r regex rs ruby rust sass scala scheme scss sh shell sql svg swift tex text toml ts tsx txt typescript vb vim wasm xml yaml yml zig zsh").split(" "));

/**
 * Returns Markdown in which pictures and embedded notes are links, tags are text, and no code has a form that a plugin may
 * run. Code in blocks that begin at the edge stays as it is, to be copied.
 * @param {string} text
 */
export function safeMarkdown(text) {
	const lines = text.replace(/\r\n?/g, "\n");
	const parts = /^\s*---|\$\$|%%/.test(lines) ? [{ text: lines, isCode: false }] : partsOf(lines); // properties, formulas and comments may hide where a block ends
	const safe = parts.map((part) => (part.isCode ? part.text : defused(part.text))).join("\n");
	return safe.replace(RUN_BY_TEMPLATES, `<${JOINER}`).replace(FENCE, (line, before, language) => (LANGUAGES.has(language.toLowerCase()) ? line : before));
}

/**
 * Returns a text that does nothing in a note but stand there: as it is shown here, without commands of templates in code and
 * without links that run something when they are followed.
 * @param {string} text
 */
export function harmless(text) {
	return safeMarkdown(text).replace(/<(?=%)/g, `<${JOINER}`).replace(RUN_BY_LINKS, (link, before, scheme) => (LINKS.includes(scheme.toLowerCase()) ? link : `${before}${JOINER}${scheme}`));
}

/**
 * Returns the lines of a text that would do more in a note than stand there.
 * @param {string} text
 */
export function riskyLines(text) {
	const safe = harmless(text).split("\n");
	return text.replace(/\r\n?/g, "\n").split("\n").filter((line, index) => line !== safe[index]);
}

/**
 * Returns up to where a text that is being written is settled: behind its last paragraph, outside of a block of code,
 * that has ended. Each of both parts is drawn on its own then.
 * @param {string} text
 */
export function settledEnd(text) {
	if (/^\s*---|\$\$|%%/.test(text)) return 0; // properties, formulas and comments may go over paragraphs
	let [end, place, isCode] = [0, 0, false];
	for (const line of text.slice(0, text.lastIndexOf("\n") + 1).split("\n").slice(0, -1)) {
		place += line.length + 1;
		if (/^[\s>*+\-\d.)]*(?:`{3}|~{3})/.test(line)) isCode = !isCode;
		else if (!isCode && !line.trim()) end = place;
	}
	return end;
}

/** @param {string} text */
function defused(text) {
	return text.replace(/<(?=[a-z/!?%])/gi, `<${JOINER}`).replace(/!\[/g, `!${JOINER}[`).replace(RUN_IN_LINE, `\`${JOINER}`).replace(LOADED_BY_FORMULAS, `\\${JOINER}`);
}

/**
 * Opens notes by the links in an element, and stops those that lead neither to a note nor to the web: they may run something.
 * @param {import("obsidian").App} app
 * @param {HTMLElement} element
 */
export function followLinks(app, element) {
	/** @param {MouseEvent} event */
	const follow = (event) => {
		const link = /** @type {Element} */ (event.target).closest("a");
		if (!link || event.button > 1) return;
		const href = link.getAttribute("href") ?? link.getAttribute("xlink:href") ?? "";
		const note = link.getAttribute("data-href");
		const isSafe = URL.canParse(href, DEFAULTS.address) && LINKS.includes(new URL(href, DEFAULTS.address).protocol);
		if (isSafe && note === null) return;
		event.preventDefault();
		event.stopPropagation();
		if (!isSafe) new Notice(`This link is not followed, since it may run something: ${href}`);
		else if (note) void app.workspace.openLinkText(note, "", event.button === 1 || event.ctrlKey || event.metaKey ? "tab" : false);
	};
	for (const kind of /** @type {const} */ (["click", "auxclick"])) element.addEventListener(kind, follow, true);
}

/**
 * Parts a text into blocks of code that begin at the edge, where nothing but their end can end them, and the rest.
 * @param {string} text
 */
function partsOf(text) {
	/** @type {{ text: string, isCode: boolean }[]} */
	const parts = [];
	/** @type {string[]} */
	let lines = [];
	let fence = "";
	const finish = (/** @type {boolean} */ isCode) => {
		if (lines.length) parts.push({ text: lines.join("\n"), isCode });
		lines = [];
	};
	for (const line of text.split("\n")) {
		const found = fence ? "" : /^(`{3,})[^`]*$|^(~{3,})/.exec(line)?.slice(1).find(Boolean) ?? "";
		if (found) finish(false);
		lines.push(line);
		if (found) fence = found;
		else if (fence && new RegExp(`^ {0,3}${fence}${fence.charAt(0)}*[ \\t]*$`).test(line)) {
			finish(true);
			fence = "";
		}
	}
	finish(fence !== "");
	return parts;
}
