// What stays at a message of all that elbowroom has told of it: what the model did not get, and what can be done.
import { withoutAttachments } from "../notes/attachments.js";
import { isObject } from "../server/answers.js";

/**
 * @typedef {object} Mark
 * @property {string} kind
 * @property {string} text
 * @property {boolean} isOpen Whether it has not come to its end.
 */

/** @typedef {Extract<import("../server/stream.js").StreamEvent, { type: "notice" }>} Told */

const LARGER = "A larger window helps: load the model with more context.";
/** @type {Record<string, string>} What can be done about what a model did not get, or a person will not find again. */
const HELP = {
	"results cut": `The model read a part of it. Select what matters and ask about that alone, or ask for another part. ${LARGER}`,
	"results shortened": `Ask again for what is needed of them. ${LARGER}`,
	"tools shortened": `The model sees shorter descriptions of its tools. An agent with fewer tools has them whole. ${LARGER}`,
	images: "The model did not see the picture. Choose a model with vision and ask again.",
	"left out": "The model did not read it. Say it again.",
	truncated: "The model did not read all of it.",
	tight: LARGER,
	"not compacted": `Begin a new conversation, or attach less. ${LARGER}`,
	cut: "Say “Go on” to have the rest, or ask for a shorter answer.",
	length: "The answer reached the most tokens that it may have, so its end is missing. Say “Go on” to have the rest.",
};
/** @type {Record<string, string[]>} What a notice opens with is gone once one of these has come. */
const OPENED_BY = { loaded: ["loading"], compacted: ["compacting"], "not compacted": ["compacting"], remembered: ["remembering"], "tool result": ["tool call"], store: ["store"] };

/**
 * Returns what can be done about what a mark tells; empty where nothing was lost.
 * @param {Mark} mark
 */
export function helpFor({ kind }) {
	return HELP[kind] ?? "";
}

/**
 * Takes a notice among the marks of a message. What was open and has ended gives its place; a second sentence of the same
 * loss joins the first.
 * @param {Mark[]} marks
 * @param {Told} told
 */
export function addMark(marks, { kind, text, done }) {
	const opened = marks.findLastIndex((mark) => mark.isOpen && (mark.kind === kind || (OPENED_BY[kind] ?? []).includes(mark.kind)));
	const same = marks.find((mark) => mark.kind === kind && !mark.isOpen && helpFor(mark));
	if (kind === "waited") for (const mark of marks) mark.isOpen &&= mark.kind !== "waiting";
	else if (opened >= 0) marks.splice(opened, 1, ...(text ? [{ kind, text, isOpen: !done }] : []));
	else if (same && done) same.text = same.text.includes(text) ? same.text : `${same.text}\n${text}`;
	else if (text) marks.push({ kind, text, isOpen: !done });
}

/**
 * Tells whether a notice is about the question rather than its answer: a picture, or a note that goes along by its name.
 * @param {string} question
 * @param {Told} told
 */
export function isOfQuestion(question, { kind, text }) {
	const names = withoutAttachments(question).attachments.map(({ path }) => path.split("/").at(-1) ?? path);
	return kind === "images" || (kind === "results cut" && names.some((name) => name !== "" && text.includes(name.replace(/\.md$/, ""))));
}

const KEY = "elbowroom-marks";
const MOST_MARKED = 200;

/** Keeps marks on this device, by the ids of conversations and the places of messages: elbowroom itself keeps none. */
export class KeptMarks {
	/** @param {import("obsidian").App} app */
	constructor(app) {
		this.app = app;
	}

	/** @returns {Record<string, Record<string, Mark[]>>} */
	all() {
		const kept = /** @type {unknown} */ (this.app.loadLocalStorage(KEY));
		return isObject(kept) ? /** @type {Record<string, Record<string, Mark[]>>} */ (kept) : {};
	}

	/**
	 * @param {string} conversation
	 * @param {import("./items.js").Item[]} items
	 */
	keep(conversation, items) {
		const { [conversation]: before, ...others } = this.all();
		const own = Object.fromEntries(items.flatMap(({ id, marks }) => (id && marks.length ? [[id, marks]] : [])));
		if (!before && !Object.keys(own).length) return;
		const all = Object.entries({ ...others, ...(Object.keys(own).length ? { [conversation]: own } : {}) });
		this.app.saveLocalStorage(KEY, Object.fromEntries(all.slice(-MOST_MARKED)));
	}

	/**
	 * @param {string} conversation
	 * @param {import("./items.js").Item[]} items
	 */
	restore(conversation, items) {
		const own = this.all()[conversation];
		for (const item of items) {
			const marks = isObject(own) ? own[item.id] : undefined;
			if (!item.marks.length && Array.isArray(marks)) item.marks = marks.filter((mark) => typeof mark.kind === "string" && typeof mark.text === "string");
		}
		return items;
	}

	/** @param {string} conversation */
	forget(conversation) {
		this.keep(conversation, []);
	}
}
