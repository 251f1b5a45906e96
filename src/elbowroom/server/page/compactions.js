// What stands in the list of messages where the older part became a summary.
import { facts, h, moment, number, percent, scrolling } from "./dom.js";
import { WORDS } from "./hints.js";
import { handles } from "./byhand.js";
import { messageList } from "./messages.js";

// A divider with the freed tokens, why and how, the summary and the originals; the newest that holds can be `changed`.
export function compactionDivider(each, window, route, signal, changed) {
	const originals = messageList({ route, signal, until: each.at });
	const fold = h("details.originals", { ontoggle: () => originals.element.querySelector("li") ?? originals.more() },
		h("summary", "The originals, word for word"), scrolling("The originals", originals.element));
	const sizes = [each.before, each.after].map((tokens) => {
		const bar = h("span");
		bar.style.width = `${(tokens / Math.max(each.before, window ?? 0)) * 100}%`;
		return bar;
	});
	return h("li.divider", { "data-at": each.at },
		h("p.freed", h("strong", `${number(each.before - each.after)} tokens freed`), h("time", { datetime: new Date(each.at * 1000).toISOString() }, moment(each.at))),
		h("div.sizes", { "aria-hidden": "true" }, sizes),
		h("p.about", `Compacted here, ${number(each.before)} to ${number(each.after)} tokens. ${each.undone ? "Taken back: the originals stand again." : "A summary stands for what is above."}`),
		h("div.folds", h("details", h("summary", "Why, and how"), facts(told(each, window))),
		each.summary ? h("details", h("summary", each.original ? "The summary, in your words" : "The summary that stands for it"), scrolling("The summary", h("div.said.summary", each.summary))) : null,
		each.original ? h("details", h("summary", "The original summary"), scrolling("The original summary", h("div.said", each.original))) : null,
		fold), changed && handles(each, route, changed));
}

function told(each, window) {
	const rung = each.rung ?? each.method;
	const share = window ? `, ${percent(each.before / window)} of its window,` : "";
	return [
		["Why", `The chat had grown to ${number(each.before)} tokens${share} and the next answers need room.`],
		["Focus", each.focus],
		["Written", WORDS[rung] ?? rung],
		["Took", typeof each.seconds === "number" ? `${each.seconds < 10 ? Math.max(.1, each.seconds).toFixed(1) : Math.round(each.seconds)} s` : null],
		["Verdict", each.verdict],
		["Became a summary", each.messages_removed ? `${number(each.messages_removed)} messages` : null],
		["Kept word for word", typeof each.messages_kept === "number" ? `${number(each.messages_kept)} ${each.messages_kept === 1 ? "message" : "messages"}` : typeof each.kept === "number" ? `${number(each.kept)} ${each.kept === 1 ? "group" : "groups"}` : null],
	].filter(([, value]) => value);
}
