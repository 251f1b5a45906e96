// What is shown of a conversation: one item for each message or turn, made of the messages that elbowroom keeps.
import { isObject } from "../server/answers.js";
import { parsed } from "../server/server.js";

/** @typedef {import("../server/server.js").ChatMessage} ChatMessage */

/**
 * @typedef {object} Step One call of a tool that ran in elbowroom.
 * @property {string} id
 * @property {string} name
 * @property {string} arguments
 * @property {string} state
 * @property {string} result
 */

/**
 * @typedef {object} Item One message as it is shown; `sent` is the message as elbowroom knows it.
 * @property {string} id
 * @property {"user" | "assistant" | "system"} role
 * @property {string} text
 * @property {string} thought
 * @property {Step[]} steps
 * @property {"complete" | "streaming" | "interrupted" | "waiting" | "again"} status `waiting`: a question that could not be
 *   asked, since elbowroom was away; `again`: it was asked once more by itself.
 * @property {number} at When, in seconds since 1970.
 * @property {string[]} between What was said to it while it was written.
 * @property {{ role: string, text: string }[]} recalled
 * @property {import("./marks.js").Mark[]} marks
 * @property {ChatMessage | null} sent
 */

/**
 * @param {"user" | "assistant" | "system"} role
 * @param {string} text
 * @returns {Item}
 */
export function itemOf(role, text) {
	return { id: "", role, text, thought: "", steps: [], status: "complete", at: Date.now() / 1000, between: [], recalled: [], marks: [], sent: null };
}

/**
 * Returns the last question where elbowroom does not know it, since asking failed before it was there.
 * @param {Item[]} items
 * @param {Item[]} kept
 */
export function unheard(items, kept) {
	const last = items.findLast(({ status }) => status !== "streaming" && status !== "interrupted");
	const isKnown = !last || last.role !== "user" || last.id || kept.some(({ role, text }) => role === "user" && text === last.text);
	return isKnown ? [] : [last];
}

/**
 * Returns messages that were read again, each as the object that was shown for it, with its marks: what has not changed is not
 * drawn anew. Of an answer that was stopped, elbowroom may have more words.
 * @param {Item[]} items
 * @param {Item[]} before
 */
export function asShown(items, before) {
	const known = new Map(before.map((item) => [item.id || item, item]));
	const unnamed = new Set(before.filter(({ id }) => !id));
	return items.map((item, index) => {
		const said = item.text.trim();
		const place = before[index];
		const same = known.get(item.id || item) ?? [place, ...unnamed].find((each) => each && unnamed.has(each) && each.role === item.role
			&& (each === place ? said.startsWith(each.text.trim()) : each.text.trim() === said));
		if (!same) return item;
		unnamed.delete(same);
		const steps = JSON.stringify(same.steps) === JSON.stringify(item.steps) ? same.steps : item.steps;
		return Object.assign(same, item, { steps, marks: same.marks });
	});
}

/**
 * @param {Item} item
 * @returns {ChatMessage}
 */
export function messageOf(item) {
	return item.sent ?? { role: item.role, content: item.text };
}

/**
 * Returns what is shown for the messages that elbowroom keeps: one item for each turn, as its client has seen it.
 * @param {import("../server/server.js").MessageRow[]} rows
 */
export function itemsOf(rows) {
	/** @type {Item[]} */
	const items = [];
	/** @type {Map<string, Item>} */
	const turns = new Map();
	for (const row of rows) {
		const found = row.turn ? turns.get(row.turn) : undefined;
		const item = found ?? itemFor(row);
		if (!found) items.push(item);
		if (row.turn) {
			turns.set(row.turn, item);
			addToTurn(item, row);
		}
	}
	return items;
}

/**
 * @param {import("../server/server.js").MessageRow} row
 * @returns {Item}
 */
function itemFor(row) {
	if (row.turn) return { ...itemOf("assistant", ""), id: row.id, at: row.created };
	const role = row.message.role === "user" ? "user" : row.message.role === "assistant" ? "assistant" : "system";
	return { ...itemOf(role, textOf(row.message)), id: row.id, at: row.created, recalled: row.recalled ?? [], sent: row.message };
}

/**
 * @param {Item} item
 * @param {import("../server/server.js").MessageRow} row
 */
function addToTurn(item, row) {
	const { message } = row;
	if (message.role === "user") item.between.push(textOf(message));
	if (message.role === "tool") {
		const step = item.steps.find(({ id }) => id === message.tool_call_id);
		if (step) step.result = textOf(message);
	}
	if (message.role !== "assistant") return;
	if (!row.hidden) item.text = [item.text, textOf(message)].filter(Boolean).join("\n\n");
	item.thought = [item.thought, row.reasoning ?? ""].filter(Boolean).join("\n\n");
	if (!row.hidden && message.tool_calls) item.sent = { ...message, content: item.text }; // calls of a client's own tools
	for (const { id, function: called } of message.tool_calls ?? []) item.steps.push({ id, name: called.name, arguments: called.arguments, state: row.calls[id] ?? "", result: "" });
	if (row.turn_status === "interrupted") item.status = "interrupted";
}

/** @param {{ content?: ChatMessage["content"] }} message */
export function textOf({ content }) {
	if (typeof content === "string") return content;
	return (content ?? []).map((part) => part.text ?? (part.type === "image_url" ? "[image]" : `[${part.type}]`)).join("\n");
}

/**
 * Returns the arguments of a call as an object, empty where they are none.
 * @param {Step} step
 */
export function argumentsOf(step) {
	const value = parsed(step.arguments);
	return isObject(value) ? value : {};
}
