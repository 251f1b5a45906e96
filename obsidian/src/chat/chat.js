// A conversation as the view shows it: what was said, what runs, and how full the window is. It knows no element.
import { Events } from "obsidian";
import { asShown, itemOf, itemsOf, messageOf, textOf, unheard } from "./items.js";
import { addMark, isOfQuestion } from "./marks.js";
import { nextState } from "./state.js";
import { isObject } from "../server/answers.js";
import { ServerError, errorWords, isAbort } from "../server/server.js";
import { streamChat } from "../server/stream.js";

const PAGE = 200;
const MOST_PAGES = 100;
const POLL_MS = 1000;
const AGAIN_MS = 2000;
const MOMENT_MS = 1000;

/** @typedef {import("./items.js").Item} Item */

export class Chat extends Events {
	title = "";
	/** @type {Item[]} */
	items = [];
	/** @type {import("../server/server.js").CompactionRow[]} */
	compactions = [];
	/** @type {import("../server/server.js").ContextFill | null} */
	context = null;
	/** @type {import("../server/server.js").QueuedRow[]} */
	queue = [];
	/**
	 * What waited for an answer that was stopped, here or by another program: nobody has read it.
	 * @type {import("../server/server.js").QueuedRow[]}
	 */
	dropped = [];
	/** What happens beside the answer, in words; empty for nothing. */
	notice = "";
	/** @type {ServerError | null} */
	problem = null;
	version = "";
	/** Whether elbowroom works for the next turn, behind the answer: the gauge may change. */
	worksAhead = false;
	/** Whether a person has chosen who answers; then what elbowroom keeps does not change it. */
	isPicked = false;
	/** @type {AbortController | null} What stops the answer. */
	#stopping = null;
	/** @type {Promise<void>} */
	#answering = Promise.resolve();
	/** @type {Promise<void>} */
	#reading = Promise.resolve();
	/** @type {number | null} */
	#timer = null;

	/**
	 * @param {import("../server/server.js").Server} server
	 * @param {{ id?: string, model?: string, marks?: import("./marks.js").KeptMarks | null }} [wanted] The `id` of a conversation that
	 *   elbowroom keeps, whichever program began it; without one it is a new conversation.
	 */
	constructor(server, { id = "", model = "", marks = null } = {}) {
		super();
		this.server = server;
		this.model = model;
		this.marks = marks;
		/** The id or the name by which elbowroom knows the conversation. */
		this.id = id || newName();
		/** @type {import("./state.js").State} */
		this.state = id ? "unread" : "new";
	}

	/** Whether an answer is being written here. */
	get isRunning() {
		return this.state === "asked" || this.state === "writing";
	}

	/** Whether an answer is being written, here or for another program. */
	get isBusy() {
		return this.isRunning || this.state === "elsewhere";
	}

	/** Whether an answer is being written, or a question waits until elbowroom is back. */
	get isPending() {
		return this.isRunning || (!this.isClosed && this.items.at(-1)?.status === "waiting");
	}

	/** Whether elbowroom has it. */
	get isKept() {
		return this.state !== "new" && this.state !== "asked";
	}

	get isClosed() {
		return this.state === "closed";
	}

	/** Whether nothing answers at the address of elbowroom, as far as was seen last. */
	get isAway() {
		return this.problem?.status === 0;
	}

	/** @param {import("./state.js").Change} change */
	#now(change) {
		this.state = nextState(this.state, change);
	}

	/** Tells the view what has changed: "items", "last" for the message that is written, or "state" for all else. */
	/** @param {"items" | "last" | "state"} what */
	changed(what) {
		if (!this.isClosed) this.trigger("changed", what);
	}

	/** Lets go of it for good: nothing is asked any more. An answer that is being written ends, and elbowroom keeps what was said. */
	close() {
		this.#now("close");
		this.#stopping?.abort();
		this.#stopTimer();
	}

	/** Reads the conversation, also once more. */
	load() {
		return this.#reading = this.#load();
	}

	async #load() {
		try {
			const row = await this.server.conversation(this.id);
			const rows = await this.#rows();
			const queue = await this.server.queued(this.id);
			if (this.isClosed || this.isRunning) return;
			if (this.state === "unread") this.#now("read");
			this.#take(row);
			if (!this.isPicked) this.model = row.agent || this.model;
			Object.assign(this, { queue: queue.data, dropped: queue.dropped });
			this.#show(itemsOf(rows));
			this.problem = null;
		} catch (error) {
			if (this.isClosed) return;
			this.#failed(error);
		}
		this.changed("items");
		this.#schedule();
	}

	/**
	 * Takes what elbowroom keeps, and what it has not heard; a question that was to be asked still is.
	 * @param {Item[]} kept
	 */
	#show(kept) {
		const before = this.items;
		const isWaiting = before.at(-1)?.status === "waiting";
		this.items = asShown([...kept, ...unheard(before, kept)], before);
		this.marks?.restore(this.id, this.items);
		if (before.some(({ marks }) => marks.length)) this.marks?.keep(this.id, this.items);
		const last = this.items.at(-1);
		if (isWaiting && last?.role === "user") last.status = "waiting";
	}

	/**
	 * Says something: begins an answer, or tells it to the one that is being written. Returns whether it was taken.
	 * @param {string | import("../server/server.js").ContentPart[]} content
	 * @returns {Promise<boolean>}
	 */
	async send(content) {
		await this.#reading;
		await Promise.race([this.#catchUp(), aMoment()]);
		if (this.isClosed || this.state === "unread") return false;
		if (this.isBusy) return this.say(content);
		this.items.push(questionOf(content));
		void this.answer();
		return true;
	}

	/** Waits for what elbowroom notes of the last answer, and reads what another device or view has said since. */
	async #catchUp() {
		if (!this.isRunning) await this.#answering;
		await this.lookAgain();
	}

	/**
	 * Tells the answer that is being written something.
	 * @param {string | import("../server/server.js").ContentPart[]} content
	 * @param {"steer" | "follow_up"} [mode]
	 */
	async say(content, mode = "steer") {
		try {
			const { id, running } = await this.server.queue(this.id, content, mode);
			await this.#readQueue().catch(() => {});
			return running || await this.#sayAlone(id, content);
		} catch (error) {
			if (!this.isClosed) this.missed(error);
			return false;
		}
	}

	/**
	 * Asks what was said to an answer that had just ended, unless it was taken in all the same.
	 * @param {string} message The id of what waits.
	 * @param {string | import("../server/server.js").ContentPart[]} content
	 */
	async #sayAlone(message, content) {
		await this.#answering;
		const waits = !this.isClosed && await this.server.unqueue(this.id, message).then(() => true, () => false);
		if (!waits) return true;
		await this.load();
		return !this.isClosed && !this.problem && this.send(content);
	}

	/**
	 * Takes back what waits. Returns whether it still waited.
	 * @param {string} message The id of one that waits.
	 */
	async unsay(message) {
		const isBack = await this.server.unqueue(this.id, message).then(() => true, (error) => { this.missed(error); return false; });
		await this.#readQueue().catch(() => {});
		return isBack;
	}

	async #readQueue() {
		const queue = await this.server.queued(this.id);
		if (this.isClosed) return;
		Object.assign(this, { queue: queue.data, dropped: queue.dropped });
		this.changed("state");
	}

	/** Answers the last message. */
	answer() {
		return this.isRunning || this.isClosed ? this.#answering : this.#answering = this.#write();
	}

	async #write() {
		this.#now("ask");
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
				if (this.isClosed) return;
				this.#hear(item, event);
			}
			item.status = "complete";
		} catch (error) {
			failure = error;
		}
		if (!this.isClosed) await this.#ended(item, failure);
	}

	/**
	 * @param {Item} item
	 * @param {import("../server/stream.js").StreamEvent} event
	 */
	#hear(item, event) {
		if (event.type === "begun") {
			this.id = event.conversation || this.id;
			this.#now("begun");
		} else if (event.type === "text") {
			item.text += event.text;
			this.changed("last");
		} else if (event.type === "thought") {
			item.thought += event.text;
			this.changed("last");
		} else if (event.type === "notice" || event.type === "whole") {
			this.notice = event.type === "notice" && event.done ? "" : event.text;
			if (event.type === "notice") this.#mark(item, event);
			this.trigger("notice", event);
			this.changed("state");
		} else if (event.type === "end" && event.reason === "length") addMark(item.marks, { type: "notice", kind: "length", text: "The answer ends before its end.", done: true, data: {} });
	}

	/**
	 * Keeps a notice at its message: at the question where it is about that, else at the answer.
	 * @param {Item} item
	 * @param {import("./marks.js").Told} told
	 */
	#mark(item, told) {
		const question = this.items.findLast(({ role }) => role === "user");
		const isOfIt = question && isOfQuestion(question.text, told);
		addMark((isOfIt ? question : item).marks, told);
		this.trigger("marked", isOfIt ? question : item);
	}

	/**
	 * @param {Item} item
	 * @param {unknown} failure Null where the answer came to its end.
	 */
	async #ended(item, failure) {
		this.#now("end");
		this.#stopping = null;
		this.notice = "";
		for (const mark of item.marks) mark.isOpen = false;
		if (failure !== null) {
			item.status = "interrupted";
			if (!isAbort(failure)) this.#failed(failure);
			if (!item.text && !item.thought) this.#unasked(item);
		}
		this.changed("items");
		if (this.isAway) this.#schedule();
		else await this.#settle(item);
		this.trigger("ended");
	}

	/**
	 * Takes an empty answer away; its question is asked again once elbowroom is back, by itself once at most where it had
	 * arrived: it may be what ends elbowroom.
	 * @param {Item} item
	 */
	#unasked(item) {
		const place = this.items.indexOf(item);
		const question = this.items[place - 1];
		this.items.splice(place, 1);
		if (question?.role !== "user") return;
		question.marks.push(...item.marks);
		if (this.isAway && (this.problem?.code === "away" || question.status !== "again")) question.status = "waiting";
	}

	/** Asks what could not be asked while elbowroom was away. */
	goOn() {
		const last = this.items.at(-1);
		if (last?.status !== "waiting" || !this.model || this.isAway || (this.state !== "new" && this.state !== "idle")) return;
		last.status = "again";
		void this.answer();
	}

	/**
	 * Takes what elbowroom has noted of an answer: its size, compactions, and the tools that ran.
	 * @param {Item} item
	 */
	async #settle(item) {
		try {
			const row = await this.server.conversation(this.id, { limit: 50 });
			const { data } = await this.server.messages(this.id, { limit: 50, order: "desc" });
			if (this.isClosed || this.isRunning) return;
			this.#take(row);
			const rows = itemsOf(data.reverse());
			const kept = rows.at(-1);
			const isTheLast = kept?.role === "assistant" && kept.text.trim() === item.text.trim();
			if (isTheLast) this.#note(item, kept, rows.at(-2));
			else if (!this.problem && kept) return await this.load(); // another program has gone on with the conversation since
			await this.#readQueue();
		} catch (error) {
			if (!this.isClosed && !this.problem && !(error instanceof ServerError && error.status === 404)) this.#failed(error);
		}
		this.changed("items");
		this.#schedule();
	}

	/**
	 * @param {Item} item
	 * @param {Item} kept The same answer as elbowroom has it.
	 * @param {Item | undefined} asked
	 */
	#note(item, kept, asked) {
		Object.assign(item, { id: kept.id, steps: kept.steps, between: kept.between, at: kept.at });
		const question = this.items[this.items.indexOf(item) - 1];
		if (question?.role === "user" && asked?.role === "user" && question.text === asked.text) Object.assign(question, { id: asked.id, recalled: asked.recalled });
		this.marks?.keep(this.id, this.items);
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
	 * @param {Item} item
	 * @param {string | import("../server/server.js").ContentPart[]} content
	 */
	edit(item, content) {
		const place = this.items.indexOf(item);
		if (this.isBusy || this.isClosed || place < 0) return false;
		this.items.splice(place, Infinity, questionOf(content));
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
		let ended = "";
		Object.assign(this, { notice: words, problem: null });
		this.changed("state");
		await this.#answering; // what is noted of it was read before, and would take the place of what comes now
		try {
			const done = await work();
			const row = await this.server.conversation(this.id);
			if (isObject(done) && done.compacted === false) ended = "Nothing could be freed.";
			if (!this.isClosed) this.#take(row.context && isObject(done) && typeof done.after === "number" ? { ...row, context: { ...row.context, tokens: done.after } } : row);
		} catch (error) {
			if (!this.isClosed) this.#failed(error);
		}
		this.notice = ended;
		this.changed("items");
		return true;
	}

	/** Looks whether another device, or another view, has gone on with the conversation. */
	async lookAgain() {
		if (!this.isKept || this.isRunning || this.isClosed) return;
		if (this.isAway || this.state === "unread") return this.load();
		const row = await this.server.conversation(this.id).catch(() => null);
		if (this.isClosed || this.isRunning) return;
		if (row && (row.status === "running" || versionOf(row) !== this.version)) return this.load();
		if (row && !this.isBusy) {
			const isCompacted = row.compactions.length !== this.compactions.length;
			this.#take(row);
			if (isCompacted) this.changed("items");
		}
		this.#schedule();
	}

	/** @param {import("../server/server.js").ConversationRow} row */
	#take(row) {
		this.title = row.title;
		this.context = row.context;
		this.compactions = row.compactions;
		this.worksAhead = row.works_ahead;
		this.version = versionOf(row);
		if (this.state !== "unread") this.#now(row.status === "running" ? "busy" : "read");
		this.trigger("context", row.context);
	}

	/** @param {unknown} error */
	#failed(error) {
		this.problem = error instanceof ServerError ? error : new ServerError(errorWords(error), 0);
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
	async #rows() {
		/** @type {import("../server/server.js").MessageRow[]} */
		const rows = [];
		/** @type {string | undefined} */
		let after;
		for (let pages = 0; pages < MOST_PAGES; pages++) {
			const page = await this.server.messages(this.id, { limit: PAGE, ...(after ? { after } : {}) });
			rows.push(...page.data);
			if (!page.has_more || !page.next) break;
			after = page.next;
		}
		return rows;
	}

	/** Looks again in a moment, where something runs or elbowroom is away. */
	#schedule() {
		this.#stopTimer();
		if (!this.isClosed && (this.isBusy || this.isAway || this.worksAhead)) this.#timer = window.setTimeout(() => void this.#look(), this.isAway ? AGAIN_MS : POLL_MS);
	}

	async #look() {
		if (this.isAway && !this.isRunning) await this.#lookForIt();
		else if (this.isBusy) await this.#lookAtIt();
		else return this.lookAgain();
		if (this.isClosed) return;
		this.changed("state");
		this.#schedule();
	}

	/** Looks whether elbowroom is back; then what was said to it meanwhile is asked. */
	async #lookForIt() {
		const isBack = await this.server.health().then(() => true, () => false);
		if (this.isClosed || !isBack) return;
		this.trigger("back");
		if (this.isKept) await this.load();
		else this.problem = null;
		this.goOn();
	}

	/** Looks how far an answer is. */
	async #lookAtIt() {
		const ran = this.state === "elsewhere";
		/** @type {unknown} */
		let failure;
		const row = await this.server.conversation(this.id).catch((error) => { failure = error; });
		if (this.isClosed) return;
		if (row) this.#take(row);
		else if (ran) {
			this.#now("read"); // as far as can be seen from here
			this.#failed(failure);
		}
		if (row && ran && this.state === "idle") await this.load();
		else if (this.queue.length) await this.#readQueue().catch(() => {});
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
	const [, typed = "", rest = ""] = /^\/(\w+)(?:\s+([^]*))?$/.exec(text.trim()) ?? [];
	const name = typed.toLowerCase();
	return name === "compact" || name === "vault" || (name === "new" && !rest) ? { name, rest } : null;
}

/**
 * Returns a question; what is more than text, such as a picture, is sent as it is.
 * @param {string | import("../server/server.js").ContentPart[]} content
 */
function questionOf(content) {
	const item = itemOf("user", textOf({ content }));
	if (typeof content !== "string") item.sent = { role: "user", content };
	return item;
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
