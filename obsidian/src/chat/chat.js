// A conversation as the view shows it: what was said, what runs, and how full the window is. It knows no element.
import { Events } from "obsidian";
import { itemOf, itemsOf, messageOf, unheard } from "./items.js";
import { ServerError, errorWords, isAbort, isObject } from "../server/server.js";
import { streamChat } from "../server/stream.js";

const PAGE = 200;
const MOST_PAGES = 100;
const POLL_MS = 1000;
const AGAIN_MS = 2000;
const MOMENT_MS = 1000;

/** @typedef {import("./items.js").Item} Item */

export class Chat extends Events {
	/** The id or the name by which elbowroom knows the conversation. */
	id = newName();
	title = "";
	model = "";
	/** @type {Item[]} */
	items = [];
	/** @type {import("../server/server.js").CompactionRow[]} */
	compactions = [];
	/** @type {import("../server/server.js").ContextFill | null} */
	context = null;
	/** @type {import("../server/server.js").QueuedRow[]} */
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
	/** @type {Promise<void>} */
	#answering = Promise.resolve();
	/** @type {Promise<void>} */
	#reading = Promise.resolve();
	/** Whether all of it is here: an answer without what was said before would be one without its context. */
	#isWhole = true;
	#round = 0;
	#isClosed = false;
	/** @type {number | null} */
	#timer = null;

	/** @param {import("../server/server.js").Server} server */
	constructor(server) {
		super();
		this.server = server;
	}

	get isRunning() {
		return this.#stopping !== null;
	}

	/** Whether an answer is being written, here or for another program. */
	get isBusy() {
		return this.isRunning || this.runsElsewhere;
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
		this.#isWhole = true;
		Object.assign(this, {
			id: newName(), title: "", model, items: [], compactions: [], context: null, queue: [], notice: "", isKept: false, version: "", runsElsewhere: false,
			problem: this.isAway ? this.problem : null,
		});
		this.changed("items");
		this.#schedule();
	}

	/** Lets go of it for good: nothing is asked any more. */
	close() {
		this.#isClosed = true;
		this.leave();
	}

	/** Lets go of the conversation; an answer that is being written ends, and elbowroom keeps what was said of it. */
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
		this.#isWhole = false;
		await (this.#reading = this.load());
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
			const kept = itemsOf(rows);
			this.items = [...kept, ...unheard(this.items, kept)];
			this.#isWhole = true;
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
	 * @returns {Promise<boolean>}
	 */
	async send(text) {
		const command = commandIn(text);
		if (command?.name === "compact") return this.compact(command.rest);
		if (command) {
			this.begin(this.model);
			return true;
		}
		const round = this.#round;
		await this.#reading;
		await Promise.race([this.#catchUp(), aMoment()]);
		if (round !== this.#round || !this.#isWhole) return false;
		if (!this.isBusy) {
			this.items.push(itemOf("user", text));
			void this.answer();
			return true;
		}
		return this.say(text);
	}

	/** Waits for what elbowroom notes of the last answer, and reads what another device or view has said since. */
	async #catchUp() {
		if (!this.isRunning) await this.#answering;
		await this.lookAgain();
	}

	/**
	 * Tells the answer that is being written something.
	 * @param {string} text
	 * @param {"steer" | "follow_up"} [mode]
	 */
	async say(text, mode = "steer") {
		const round = this.#round;
		try {
			const { id, running } = await this.server.queue(this.id, text, mode);
			await this.#readQueue().catch(() => {});
			return running || await this.#sayAlone(id, text, round);
		} catch (error) {
			if (round === this.#round) this.missed(error);
			return false;
		}
	}

	/**
	 * Asks what was said to an answer that had just ended, unless it was taken in all the same.
	 * @param {string} message The id of what waits.
	 * @param {string} text
	 * @param {number} round
	 */
	async #sayAlone(message, text, round) {
		await this.#answering;
		const waits = round === this.#round && await this.server.unqueue(this.id, message).then(() => true, () => false);
		if (!waits) return true;
		await this.load();
		return round === this.#round && !this.problem && this.send(text);
	}

	/** @param {string} message The id of one that waits. */
	async unsay(message) {
		await this.server.unqueue(this.id, message).catch((error) => this.#failed(error));
		await this.#readQueue().catch(() => {});
	}

	async #readQueue() {
		const round = this.#round;
		const queue = await this.server.queued(this.id);
		if (round !== this.#round) return;
		this.queue = queue;
		this.changed("state");
	}

	/** Answers the last message. */
	answer() {
		return this.isRunning ? this.#answering : this.#answering = this.#write();
	}

	async #write() {
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
	 * @param {import("../server/stream.js").StreamEvent} event
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
		this.#schedule();
	}

	/** Stops the answer, also one that another program began. What was said stays. */
	async stop() {
		const stopping = this.#stopping;
		// The connection is closed in any case, also where elbowroom does not take the word.
		if (this.isKept) await Promise.race([this.server.cancel(this.id).catch(() => {}), aMoment()]);
		stopping?.abort();
	}

	/** Has the last question answered once more; the answer so far stays in a branch of its own. */
	async retry() {
		if (this.isBusy) return;
		const last = this.items.findLastIndex(({ role }) => role === "user");
		if (last < 0) return;
		this.items.length = last + 1;
		await this.answer();
	}

	/**
	 * Asks in other words; what followed stays in a branch of its own. Returns whether that was begun.
	 * @param {Item} item It may have been read again since.
	 * @param {string} text
	 */
	edit(item, text) {
		const known = this.items.indexOf(item);
		const place = known < 0 ? this.items.findLastIndex(({ role, text: said }) => role === item.role && said === item.text) : known;
		if (this.isBusy || place < 0) return false;
		this.items.splice(place, Infinity, itemOf("user", text));
		void this.answer();
		return true;
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

	/** Looks whether another device, or another view, has gone on with the conversation. */
	async lookAgain() {
		if (!this.isKept || this.isRunning) return;
		if (this.isAway) return this.load();
		const round = this.#round;
		const row = await this.server.conversation(this.id).catch(() => null);
		const isNew = row && (row.status === "running" || versionOf(row) !== this.version);
		if (isNew && round === this.#round && !this.isRunning) await this.load();
	}

	/** @param {import("../server/server.js").ConversationRow} row */
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
		/** @type {import("../server/server.js").MessageRow[]} */
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
		if (!this.#isClosed && (this.isBusy || this.isAway)) this.#timer = window.setTimeout(() => void this.#look(), this.isAway ? AGAIN_MS : POLL_MS);
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
			const ran = this.runsElsewhere;
			/** @type {unknown} */
			let failure;
			const row = await this.server.conversation(this.id).catch((error) => { failure = error; });
			if (round !== this.#round) return;
			if (row) this.#take(row);
			else if (ran) {
				this.runsElsewhere = false; // as far as can be seen from here
				this.#failed(failure);
			}
			if (row && ran && !this.runsElsewhere) return this.load();
			if (this.queue.length) await this.#readQueue().catch(() => {});
			if (round !== this.#round) return;
		}
		this.changed("state");
		this.#schedule();
	}

	#stopTimer() {
		if (this.#timer !== null) window.clearTimeout(this.#timer);
		this.#timer = null;
	}
}

/**
 * Returns the command that a text is, with what stands behind it; null where it is none.
 * @param {string} text
 */
export function commandIn(text) {
	const [, name = "", rest = ""] = /^\/(\w+)(?:\s+([^]*))?$/.exec(text.trim()) ?? [];
	return name === "compact" || (name === "new" && !rest) ? { name, rest } : null;
}

/** Waits as long as a person would who wants something done in any case. */
function aMoment() {
	return new Promise((done) => { window.setTimeout(done, MOMENT_MS); });
}

/** Returns a name for a conversation that nobody else gives. */
function newName() {
	return `obsidian-${crypto.randomUUID()}`;
}

/**
 * Returns what changes with every answer to a conversation, also within the second that `updated` tells.
 * @param {import("../server/server.js").ConversationRow} row
 */
function versionOf({ updated, usage }) {
	return JSON.stringify([updated, usage]);
}
