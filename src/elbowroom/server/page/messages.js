// The messages of a conversation, page by page, with calls of tools folded around their results.
import { api } from "./api.js";
import { pinButton } from "./byhand.js";
import { recalledWith } from "./recall.js";
import { rendered } from "./markdown.js";
import { act, button, empty, h, marked, number, time, trouble, written } from "./dom.js";

export const PAGE = 100;
const ROLES = { user: "User", assistant: "Assistant", system: "System", tool: "Result of a tool", developer: "System" };
const CUT = 1500;
let asText = false; // as the person has chosen, until the page is closed

export const textOf = ({ content }) => (typeof content === "string" ? content
	: (content ?? []).map((part) => part.text ?? (part.type === "image_url" ? "[image]" : `[${part.type}]`)).join("\n"));

// A list of messages, the newest page first; with `until` from the first to those that were there at that moment.
export function messageList({ route, signal, compactions, divider, changed, until = Infinity, search = "" }) {
	const list = h("ol.messages");
	const foot = h("div.foot");
	const isWhole = until === Infinity;
	const hidden = isWhole ? h("label.check", h("input", { type: "checkbox", checked: true, onchange: () => self.refresh() }), "Show what no client has seen") : null;
	const plain = isWhole ? h("label.check", h("input", { type: "checkbox", checked: asText, onchange: (event) => { asText = event.currentTarget.checked; self.refresh(); } }), "As text") : null;
	const element = isWhole
		? h("section", { "aria-labelledby": "messages" }, h("div.head", h("h2", { id: "messages" }, "Messages"), plain, hidden), foot, list)
		: h("div", list, foot);
	let cursor = "", next = Infinity, count = 0, round = 0;
	let pairs = new Map();
	const self = {
		element, list,
		hasMore: () => Boolean(cursor),
		async more(limit = PAGE) {
			const mine = round;
			const query = new URLSearchParams({ limit, hidden: hidden?.firstChild.checked ?? true, order: isWhole ? "desc" : "asc", after: cursor });
			try {
				const page = await api(`${route}/messages?${query}`, { signal });
				if (mine === round) self.take(page);
				return true;
			} catch (error) {
				if (error.name !== "AbortError") foot.replaceChildren(trouble(error, () => self.more(limit)));
				return false;
			}
		},
		take(page) {
			const rows = page.data.filter((message) => message.created <= until);
			const before = list.scrollHeight;
			for (const row of rows) {
				list[isWhole ? "prepend" : "append"](messageItem(row, search, changed && route, changed), ...dividers(row.created, next));
				pair(row, isWhole ? list.firstChild : list.lastChild);
				next = row.created;
			}
			if (isWhole && cursor) scrollBy(0, list.scrollHeight - before);
			count += rows.length;
			cursor = page.next ?? "";
			const ended = !cursor || rows.length < page.data.length;
			foot.replaceChildren(...(count ? [] : [empty("No message", "Nothing was kept of it.")]), ...(ended ? [] : [button(isWhole ? "Earlier messages" : "Show more", () => self.more())]));
		},
		async refresh() {
			const limit = Math.min(200, count + 20);
			round += 1;
			cursor = "", next = Infinity, count = 0, pairs = new Map();
			list.replaceChildren();
			await self.more(limit);
		},
	};
	const dividers = (from, to) => (isWhole ? compactions().filter(({ at }) => at > from && at <= to).map(divider) : []);

	// Puts a result into its call, whichever of the two comes first; clients give ids more than once.
	function pair({ message }, item) {
		const id = message.tool_call_id;
		if (id) join(pairs.get(id)?.call, item, id, "result", item);
		else (message.tool_calls ?? []).forEach((call, place) => join(item.querySelectorAll(".call")[place], pairs.get(call.id)?.result, call.id, "call", item.querySelectorAll(".call")[place]));
	}

	function join(call, result, id, kind, node) {
		if (!call || !result) { pairs.set(id, { [kind]: node }); return; }
		call.append(...result.querySelectorAll(":scope > .result-body"));
		result.remove();
		pairs.delete(id);
	}
	return self;
}

function messageItem(row, search, route, changed) {
	const { message, number: place, created, status, hidden, reasoning, agent, calls = {}, full_output: output, cache_lost: lost, id, key, pinned } = row;
	const isResult = message.role === "tool";
	const marks = [pinned && "pinned", hidden && "not shown to the client", status === "interrupted" && "interrupted", status === "streaming" && "being written"].filter(Boolean);
	return h("li", { class: `message ${message.role === "user" ? "from-user" : ""}`, "data-id": id },
		h("p.who", `${place}. `, h("strong", message.role === "assistant" && agent ? agent : ROLES[message.role] ?? message.role), " ", time(created), marks.map((mark) => h("span.badge", mark)), route && key && !hidden && ["user", "assistant"].includes(message.role) && pinButton({ id, pinned }, route, changed)),
		lost && h("p.about", lost.told),
		reasoning && h("details", h("summary", "Thought"), h("div.said.quiet-text.boxed", reasoning)),
		isResult ? result(message, output, search) : content(message, search),
		recalledWith(row, route, changed),
		(message.tool_calls ?? []).map((call) => h("details.call", h("summary", "Called ", h("code", written(call.function?.name ?? call.type ?? "a tool")), calls[call.id] && h("span.badge", calls[call.id])),
			h("p.label", "Arguments"), h("pre.said", { tabindex: "0" }, written(call.function?.arguments ?? "")))));
}

function content(message, search) {
	const text = textOf(message);
	if (!text) return null;
	const isCut = text.length > CUT && !(search && text.toLowerCase().includes(search.toLowerCase()));
	const isPlain = asText || search || !["user", "assistant"].includes(message.role);
	const shown = (part) => (isPlain ? marked(part, search) : rendered(part));
	const body = h(isPlain ? "div.said" : "div.said.rendered", shown(isCut ? `${text.slice(0, CUT)}…` : text));
	const rest = isCut && button(`Show all ${number(text.length)} characters`, () => { body.replaceChildren(...h("div", shown(text)).childNodes); rest.remove(); }, "small");
	return [body, rest];
}

// A tool's result in a box that scrolls; what was cut for the model is one click away.
function result(message, output, search) {
	const text = textOf(message);
	const body = h("pre.said", { tabindex: "0" }, marked(text, search));
	const full = output && act("Show the full output", async () => {
		body.textContent = await api(output);
		label.textContent = "Full output";
		full.remove();
	}, "small");
	const label = h("p.label", output ? "Output, as the model got it" : "Output");
	return h("div.result-body", label, body, full);
}
