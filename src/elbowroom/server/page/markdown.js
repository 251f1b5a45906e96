// Markdown as elements: `marked` cuts the text into tokens, and only the elements below are made of them. HTML in the text
// stays text, no image is loaded, and a link leads only to http, https and mail.
import { lexer } from "./marked.min.js";
import { h } from "./dom.js";

const LONGEST = 100000, LINK = /^(https?:|mailto:)/i;
const inside = (token) => (token.tokens ? token.tokens.map(element) : token.text ?? token.raw);
const row = (cells, tag) => h("tr", cells.map((cell) => h(tag, inside(cell))));
const MADE = {
	space: () => null, def: () => null, hr: () => h("hr"), br: () => h("br"),
	heading: (token) => h("p", h("strong", inside(token))),
	paragraph: (token) => h("p", inside(token)),
	blockquote: (token) => h("blockquote", inside(token)),
	code: (token) => h("pre.said", { tabindex: "0" }, token.text),
	codespan: (token) => h("code", token.text),
	strong: (token) => h("strong", inside(token)), em: (token) => h("em", inside(token)), del: (token) => h("del", inside(token)),
	list: (token) => h(token.ordered ? "ol" : "ul", token.ordered && token.start > 1 ? { start: token.start } : {}, token.items.map((item) => h("li", item.task && (item.checked ? "☑ " : "☐ "), inside(item)))),
	table: (token) => h("div.boxed", { tabindex: "0", role: "group", "aria-label": "Table" }, h("table", h("thead", row(token.header, "th")), h("tbody", token.rows.map((cells) => row(cells, "td"))))),
	link: (token) => (LINK.test(token.href) ? h("a", { href: token.href, rel: "noopener noreferrer", target: "_blank" }, inside(token)) : token.raw),
	image: (token) => token.raw,
	text: inside, escape: (token) => token.text,
};

const element = (token) => (Object.hasOwn(MADE, token.type) ? MADE[token.type](token) : token.raw);

// Returns the elements of a text; a very long one stays text.
export function rendered(text) {
	if (text.length > LONGEST) return [text];
	return lexer(text, { gfm: true, breaks: true }).map(element);
}
