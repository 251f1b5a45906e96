// What was said and is found again: the search in one conversation, and what came back unasked with a message.
import { api } from "./api.js";
import { act, empty, enc, h, marked, moment, searchField, time, toast } from "./dom.js";

const WAIT = 250;
const WORD = /[\p{L}\p{N}]+/gu;

// A field that finds passages of the conversation; `jump` shows the message with an id.
export function searchIn(route, signal, jump) {
	const field = searchField("Search in this conversation", {});
	const list = h("ol.plain.passages", { "aria-live": "polite" });
	let waiting = 0, round = 0;
	field.addEventListener("input", () => {
		clearTimeout(waiting);
		waiting = setTimeout(find, WAIT);
	});
	async function find() {
		const mine = ++round, wanted = field.value.trim();
		if (!wanted) return list.replaceChildren();
		const { data } = await api(`${route}/search?${new URLSearchParams({ q: wanted })}`, { signal });
		if (mine !== round) return;
		list.replaceChildren(...(data.length ? data.map((hit) => passage(hit, wanted)) : [h("li", empty("Nothing found", "None of these words was said here."))]));
	}
	const passage = (hit, wanted) => h("li",
		h("p.who", `${hit.number}. `, h("strong", hit.role), " ", time(hit.created), act("Show", async () => {
			if (!(await jump(hit.id))) toast("This message is too far back to be shown.");
		}, "small")),
		h("p.said", markedWords(hit.text, wanted)));
	return h("div.find", { role: "search" }, field, list);
}

// A text in which the first of the words that it has is marked.
function markedWords(text, wanted) {
	const words = wanted.match(WORD) ?? [];
	return marked(text, words.find((word) => text.toLowerCase().includes(word.toLowerCase())) ?? "");
}

// The passages that came back with a message, folded; each can be forgotten.
export function recalledWith({ id, recalled }, route, changed) {
	if (!recalled?.length) return null;
	const forget = (place) => act("Forget", async () => {
		await api(`${route}/messages/${enc(id)}/recalled/${place + 1}`, { method: "DELETE" });
		toast("Forgotten: it does not come back in this conversation.");
		await changed();
	}, "small");
	return h("details.recalled", h("summary", recalled.length === 1 ? "A passage came back with it" : `${recalled.length} passages came back with it`),
		recalled.map((each, place) => h("div", h("p.who", h("strong", each.role), each.at && ` ${moment(each.at)}`, route && forget(place)), h("div.said.boxed", each.text))));
}
