// What a model writes is shown as Markdown, but asks no other server for anything and runs nothing.

const JOINER = "\u2060"; // takes no place on the screen
const FENCE = /^((?:[ \t]|>|[-*+][ \t]|\d+[.)][ \t])*(?:`{3,}|~{3,})[ \t]*)([^\s`]+)([^\n`]*)$/gm;
const LANGUAGES = new Set(("asm bash bat bibtex c c++ clojure cmake conf cpp cs csharp css csv dart diff docker dockerfile elixir erlang fortran fsharp gherkin go graphql groovy h haskell html http ini "
	+ "java javascript jinja js json json5 jsonc jsx julia kotlin latex less lisp log lua makefile markdown matlab md nginx nix objectivec ocaml pascal perl php plaintext powershell properties protobuf ps1 "
	+ "py python r regex rs ruby rust sass scala scheme scss sh shell sql svg swift tex text toml ts tsx txt typescript vb vim wasm xml yaml yml zig zsh").split(" "));

/**
 * Returns Markdown in which pictures and embedded notes are links, tags are text, and no block of code has a language
 * that a plugin may run. Code in blocks that begin at the edge stays as it is, to be copied.
 * @param {string} text
 */
export function safeMarkdown(text) {
	const parts = /\$\$|%%/.test(text) ? [{ text, isCode: false }] : partsOf(text); // formulas and comments may hide where a block ends
	return parts.map((part) => (part.isCode ? part.text : defused(part.text))).join("\n").replace(FENCE, (line, before, language) => (LANGUAGES.has(language.toLowerCase()) ? line : before));
}

/** @param {string} text */
function defused(text) {
	return text.replace(/<(?=[a-z/!?])/gi, `<${JOINER}`).replace(/!\[/g, `!${JOINER}[`).replace(/`(?=\s*\$?=)/g, `\`${JOINER}`);
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
