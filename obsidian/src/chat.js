// A conversation as the view shows it: what was said, what runs, and how full the window is. It knows no element.
import { Events } from "obsidian";
import { ServerError, errorWords, isAbort, isObject, parsed } from "./server.js";
import { streamChat } from "./stream.js";

const PAGE = 200;
const MOST_PAGES = 100;
const POLL_MS = 1000;
const AGAIN_MS = 2000;
const COMMAND = /^\/(\w+)(?:\s+([^]*))?$/;

/** @typedef {import("./server.js").ChatMessage} ChatMessage */

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
 * @property {"complete" | "streaming" | "interrupted"} status
 * @property {number} at When, in seconds since 1970.
 * @property {string[]} between What was said to it while it was written.
 * @property {ChatMessage | null} sent
 */

export class Chat extends Events {
	/** The id or the name by which elbowroom knows the conversation. */
	id = newName();
	title = "";
	model = "";
	/** @type {Item[]} */
	items = [];
	/** @type {import("./server.js").CompactionRow[]} */
	compactions = [];
	/** @type {import("./server.js").ContextFill | null} */
	context = null;
	/** @type {import("./server.js").QueuedRow[]} */
	queue = [];
	/** What happens beside the answer, in words; empty for nothing. */
	notice = "";
	/** @type {ServerError | null} */
	problem = null;
	isKept = false;
	isAway = false;
	/** Whether another program's answer to this conversation runs. */
	runsElsewhere = false;
	version = "";
	/** @type {AbortController | null} */
	#stopping = null;
	#round = 0;
	/** @type {number | null} */
	#timer = null;

	/** @param {import("./server.js").Server} server */
	constructor(server) {
		super();
		this.server = server;
	}

	get isRunning() {
		return this.#stopping !== null;
	}

	/** Tells the view what has changed: "items", "last" for the message that is written, or "state" for all else. */
	/** @param {"items" | "last" | "state"} what */
	changed(what) {
		this.trigger("changed", what);
	}

	/** Begins a new conversation with this agent or model. */
	/** @param {string} model */
	begin(model) {
		this.leave();
		Object.assign(this, {
			id: newName(), title: "", model, items: [], compactions: [], context: null, queue: [], notice: "", problem: null, isKept: false, version: "", runsElsewhere: false,
		});
		this.changed("items");
	}

	/** Lets go of the conversation; an answer that is being written goes on at elbowroom, and is there later. */
	leave() {
		this.#round += 1;
		this.#stopping?.abort();
		this.#stopping = null;
		this.#stopTimer();
	}

	/**
	 * Shows a conversation that elbowroom keeps, whichever program began it.
	 * @param {string} id
	 */
	async open(id) {
		this.begin(this.model);
		this.id = id;
		this.isKept = true;
		await this.load();
	}

	/** Reads the conversation again. */
	async load() {
		const round = this.#round;
		const { id } = this;
		try {
			const row = await this.server.conversation(id);
			const rows = await this.#rows(id);
			const queue = await this.server.queued(id);
			if (round !== this.#round || this.isRunning) return;
			this.#take(row);
			this.model = row.agent || this.model;
			this.queue = queue;
			this.items = itemsOf(rows);
			this.problem = null;
			this.isAway = false;
		} catch (error) {
			if (round !== this.#round) return;
			this.#failed(error);
		}
		this.changed("items");
		this.#schedule();
	}

	/**
	 * Says something: begins an answer, or tells it to the one that is being written. Text that begins with a slash is a
	 * command where it is one. Returns whether it was taken.
	 * @param {string} text
	 */
	async send(text) {
		const command = COMMAND.exec(text.trim());
		if (command?.[1] === "new" && !command[2]) {
			this.begin(this.model);
			return true;
		}
		if (command?.[1] === "compact") return this.compact(command[2]?.trim() ?? "");
		if (!this.isRunning && !this.runsElsewhere) {
			this.items.push(itemOf("user", text));
			void this.answer();
			return true;
		}
		return this.say(text);
	}

	/**
	 * Tells the answer that is being written something.
	 * @param {string} text
	 * @param {"steer" | "follow_up"} [mode]
	 */
	async say(text, mode = "steer") {
		try {
			await this.server.queue(this.id, text, mode);
			await this.#readQueue();
			return true;
		} catch (error) {
			this.#failed(error);
			this.changed("state");
			return false;
		}
	}

	/** @param {string} message The id of one that waits. */
	async unsay(message) {
		await this.server.unqueue(this.id, message).catch((error) => this.#failed(error));
		await this.#readQueue().catch(() => {});
	}

	async #readQueue() {
		this.queue = await this.server.queued(this.id);
		this.changed("state");
	}

	/** Answers the last message. */
	async answer() {
		if (this.isRunning) return;
		const round = this.#round;
		const stopping = this.#stopping = new AbortController();
		const messages = this.items.map(messageOf);
		const item = itemOf("assistant", "");
		item.status = "streaming";
		this.items.push(item);
		Object.assign(this, { problem: null, notice: "" });
		this.changed("items");
		this.#schedule();
		/** @type {unknown} */
		let failure = null;
		try {
			for await (const event of streamChat(this.server, { model: this.model, messages }, { conversation: this.id, signal: stopping.signal })) {
				if (round !== this.#round) return;
				this.#hear(item, event);
			}
			item.status = "complete";
		} catch (error) {
			failure = error;
		}
		if (round === this.#round) await this.#ended(item, failure);
	}

	/**
	 * @param {Item} item
	 * @param {import("./stream.js").StreamEvent} event
	 */
	#hear(item, event) {
		if (event.type === "begun") {
			this.id = event.conversation || this.id;
			this.isKept = true;
		} else if (event.type === "text") {
			item.text += event.text;
			this.changed("last");
		} else if (event.type === "thought") {
			item.thought += event.text;
			this.changed("last");
		} else if (event.type === "notice" || event.type === "whole") {
			this.notice = event.type === "notice" && event.done ? "" : event.text;
			this.trigger("notice", event);
			this.changed("state");
		}
	}

	/**
	 * @param {Item} item
	 * @param {unknown} failure Null where the answer came to its end.
	 */
	async #ended(item, failure) {
		this.#stopping = null;
		this.notice = "";
		if (failure !== null) {
			item.status = "interrupted";
			if (!item.text && !item.thought) this.items.splice(this.items.indexOf(item), 1);
			if (!isAbort(failure)) this.#failed(failure);
		}
		this.changed("items");
		if (this.isAway) this.#schedule();
		else await this.#settle(item);
	}

	/**
	 * Takes what elbowroom has noted of an answer: its size, compactions, and the tools that ran.
	 * @param {Item} item
	 */
	async #settle(item) {
		const round = this.#round;
		try {
			const row = await this.server.conversation(this.id, { limit: 50 });
			const { data } = await this.server.messages(this.id, { limit: 50, order: "desc" });
			if (round !== this.#round || this.isRunning) return;
			this.#take(row);
			const kept = itemsOf(data.reverse()).at(-1);
			const isTheLast = kept?.role === "assistant" && kept.text.trim() === item.text.trim();
			if (isTheLast) Object.assign(item, { id: kept.id, steps: kept.steps, between: kept.between, at: kept.at });
			else if (!this.problem && kept) return await this.load(); // another program has gone on with the conversation since
			await this.#readQueue();
		} catch (error) {
			if (round === this.#round && !this.problem && !(error instanceof ServerError && error.status === 404)) this.#failed(error);
		}
		this.changed("items");
	}

	/** Stops the answer, also one that another program began. What was said stays. */
	async stop() {
		const stopping = this.#stopping;
		if (this.isKept) await this.server.cancel(this.id).catch(() => {}); // the connection is closed in any case
		stopping?.abort();
	}

	/** Has the last question answered once more; the answer so far stays in a branch of its own. */
	async retry() {
		if (this.isRunning) return;
		const last = this.items.findLastIndex(({ role }) => role === "user");
		if (last < 0) return;
		this.items.length = last + 1;
		await this.answer();
	}

	/**
	 * Asks in other words; what followed stays in a branch of its own.
	 * @param {Item} item
	 * @param {string} text
	 */
	async edit(item, text) {
		const place = this.items.indexOf(item);
		if (this.isRunning || place < 0) return;
		this.items.splice(place, Infinity, itemOf("user", text));
		await this.answer();
	}

	/**
	 * Compacts the conversation now. Returns whether that was begun.
	 * @param {string} focus What a person wants kept or dropped.
	 */
	async compact(focus) {
		return this.#byHand("Compacting…", () => this.server.compact(this.id, focus ? { focus } : {}));
	}

	/** Takes the newest compaction back. */
	async undo() {
		return this.#byHand("Taking the compaction back…", () => this.server.undo(this.id));
	}

	/**
	 * @param {string} words
	 * @param {() => Promise<unknown>} work
	 */
	async #byHand(words, work) {
		if (this.isRunning || !this.isKept) return false;
		const round = this.#round;
		let ended = "";
		Object.assign(this, { notice: words, problem: null });
		this.changed("state");
		try {
			const done = await work();
			const row = await this.server.conversation(this.id);
			if (isObject(done) && done.compacted === false) ended = "Nothing could be freed.";
			if (round === this.#round) this.#take(row.context && isObject(done) && typeof done.after === "number" ? { ...row, context: { ...row.context, tokens: done.after } } : row);
		} catch (error) {
			if (round === this.#round) this.#failed(error);
		}
		if (round === this.#round) this.notice = ended;
		this.changed("items");
		return true;
	}

	/** Looks whether another device has gone on with the conversation; for when the window is looked at again. */
	async lookAgain() {
		if (!this.isKept || this.isRunning) return;
		if (this.isAway) return this.load();
		const row = await this.server.conversation(this.id).catch(() => null);
		if (row && versionOf(row) !== this.version && !this.isRunning) await this.load();
	}

	/** @param {import("./server.js").ConversationRow} row */
	#take(row) {
		this.title = row.title;
		this.context = row.context;
		this.compactions = row.compactions ?? this.compactions;
		this.version = versionOf(row);
		this.runsElsewhere = row.status === "running" && !this.isRunning;
		this.trigger("context", row.context);
	}

	/** @param {unknown} error */
	#failed(error) {
		this.problem = error instanceof ServerError ? error : new ServerError(errorWords(error), 0);
		this.isAway = this.problem.status === 0;
	}

	/**
	 * Shows what has failed elsewhere; where elbowroom is away, looks until it is back and tells so by "back".
	 * @param {unknown} error
	 */
	missed(error) {
		this.#failed(error);
		this.changed("state");
		this.#schedule();
	}

	/** Reads all messages of the branch that was used last. */
	/** @param {string} id */
	async #rows(id) {
		/** @type {import("./server.js").MessageRow[]} */
		const rows = [];
		/** @type {string | undefined} */
		let after;
		for (let pages = 0; pages < MOST_PAGES; pages++) {
			const page = await this.server.messages(id, { limit: PAGE, ...(after ? { after } : {}) });
			rows.push(...page.data);
			if (!page.has_more || !page.next) break;
			after = page.next;
		}
		return rows;
	}

	/** Looks again in a moment, where something runs or elbowroom is away. */
	#schedule() {
		this.#stopTimer();
		if (this.isRunning || this.isAway || this.runsElsewhere) this.#timer = window.setTimeout(() => void this.#look(), this.isAway ? AGAIN_MS : POLL_MS);
	}

	async #look() {
		const round = this.#round;
		if (this.isAway && !this.isRunning) {
			const isBack = await this.server.health().then(() => true, () => false);
			if (round !== this.#round) return;
			if (isBack) this.trigger("back");
			if (isBack && this.isKept) return this.load();
			if (isBack) Object.assign(this, { isAway: false, problem: null });
		} else if (this.isKept) {
			const row = await this.server.conversation(this.id).catch(() => null);
			if (round !== this.#round) return;
			const ran = this.runsElsewhere;
			if (row) this.#take(row);
			if (ran && !this.runsElsewhere) return this.load();
			if (this.queue.length) await this.#readQueue().catch(() => {});
		}
		this.changed("state");
		this.#schedule();
	}

	#stopTimer() {
		if (this.#timer !== null) window.clearTimeout(this.#timer);
		this.#timer = null;
	}
}

/** Returns a name for a conversation that nobody else gives. */
function newName() {
	return `obsidian-${crypto.randomUUID()}`;
}

/**
 * @param {"user" | "assistant" | "system"} role
 * @param {string} text
 * @returns {Item}
 */
function itemOf(role, text) {
	return { id: "", role, text, thought: "", steps: [], status: "complete", at: Date.now() / 1000, between: [], sent: null };
}

/**
 * @param {Item} item
 * @returns {ChatMessage}
 */
function messageOf(item) {
	return item.sent ?? { role: item.role, content: item.text };
}

/**
 * Returns what is shown for the messages that elbowroom keeps: one item for each turn, as its client has seen it.
 * @param {import("./server.js").MessageRow[]} rows
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
 * @param {import("./server.js").MessageRow} row
 * @returns {Item}
 */
function itemFor(row) {
	if (row.turn) return { ...itemOf("assistant", ""), id: row.id, at: row.created };
	const role = row.message.role === "user" ? "user" : row.message.role === "assistant" ? "assistant" : "system";
	return { ...itemOf(role, textOf(row.message)), id: row.id, at: row.created, sent: row.message };
}

/**
 * @param {Item} item
 * @param {import("./server.js").MessageRow} row
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

/**
 * Returns what changes with every answer to a conversation, also within the second that `updated` tells.
 * @param {import("./server.js").ConversationRow} row
 */
function versionOf({ updated, usage }) {
	return JSON.stringify([updated, usage]);
}

/** @param {ChatMessage} message */
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
