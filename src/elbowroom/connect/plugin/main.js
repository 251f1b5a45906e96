// The plugin of elbowroom, joined from obsidian/src by obsidian/build.mjs.
"use strict";

const {
	Component,
	Events,
	ItemView,
	MarkdownRenderer,
	MarkdownView,
	Menu,
	Modal,
	Notice,
	Platform,
	Plugin,
	PluginSettingTab,
	SecretComponent,
	Setting,
	TFile,
	TFolder,
	debounce,
	moment,
	normalizePath,
	requestUrl,
	setIcon,
} = require("obsidian");

// server/server.js

// Requests to elbowroom. No other address is ever asked for anything.

/** What went wrong, in words for the person. A `status` of 0 says that nothing answered. */
class ServerError extends Error {
	constructor(message, status, told = {}) {
		super(message);
		this.name = "ServerError";
		this.status = status;
		this.code = told.code ?? null;
		this.param = told.param ?? null;
		this.retryAfter = told.retryAfter ?? null;
	}

	/** Tells whether pairing, or another token, would help. */
	get needsPairing() {
		return this.status === 401 || this.code === "pairing_needed";
	}
}

/**
 * Returns the error that an answer tells of.
 * @param {number} status
 * @param {string} text The body.
 * @param {(name: string) => string | null | undefined} header
 */
function errorOf(status, text, header) {
	const value = parsed(text);
	const told = /** @type {{ message?: string, code?: string, param?: string }} */ (isObject(value) && isObject(value.error) ? value.error : {});
	const wait = Number.parseFloat(header("Retry-After") ?? "");
	return new ServerError(told.message || `elbowroom answered with status ${status}.`, status, {
		code: told.code, param: told.param, retryAfter: Number.isFinite(wait) ? wait : null,
	});
}

/** Tells whether something was given up; the error may be of another window's kind. */
function isAbort(error) {
	return typeof error === "object" && error !== null && "name" in error && error.name === "AbortError";
}

function errorWords(error) {
	return error instanceof Error ? error.message : String(error);
}

/**
 * @param {string} text
 * @returns {unknown} Undefined where it is no JSON.
 */
function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

function isObject(value) {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The elbowroom at the address that is set; address and token are read anew for each request. */
class Server {
	constructor(where) {
		this.where = where;
	}

	/** Returns the whole address of a route. Raises ServerError where none is set. */
	url(path) {
		const address = this.where.address();
		if (!address) throw new ServerError("No address of elbowroom is set. Type it in the plugin's settings, such as http://127.0.0.1:2345.", 0);
		return address + path;
	}

	headers(more = {}) {
		const [token, user] = [this.where.token(), this.where.user()].map((text) => text.replace(/[^ -~]/g, "").trim()); // headers hold no other letters
		return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(user ? { "X-Elbowroom-User": user } : {}), ...more };
	}

	/** The sentence for an address at which nothing answers. */
	away() {
		return new ServerError(`elbowroom does not answer at ${this.where.address()}. Is it running?`, 0);
	}

	/**
	 * Asks for JSON. A signal only ends the waiting: Obsidian cannot take such a request back.
	 * @param {string} path
	 * @param {RequestOptions} [options]
	 * @returns {Promise<unknown>} What the body holds; null where it is empty.
	 * @throws {ServerError}
	 */
	async json(path, { method = "GET", body, signal, headers = {} } = {}) {
		const url = this.url(path);
		signal?.throwIfAborted();
		const asked = requestUrl({
			url, method, throw: false, headers: this.headers(headers),
			...(body === undefined ? {} : { contentType: "application/json", body: JSON.stringify(body) }),
		}).catch(() => { throw this.away(); });
		const answer = await (signal ? Promise.race([asked, abortOf(signal)]) : asked);
		if (answer.status >= 400) throw errorOf(answer.status, answer.text, (name) => headerIn(answer.headers, name));
		return answer.text ? parsed(answer.text) ?? answer.text : null;
	}

	async health() {
		return /** @type {{ version?: string }} */ (await this.json("/health"));
	}

	async models() {
		const answer = /** @type {{ data: ModelRow[] }} */ (await this.json("/v1/models"));
		return answer.data;
	}

	/**
	 * Trades the code that elbowroom shows for a token.
	 * @param {string} code
	 * @param {string} name What this device is called there.
	 */
	async pair(code, name) {
		return /** @type {{ token: string, id: string, name: string }} */ (await this.json("/api/pairing/claim", { method: "POST", body: { code, name } }));
	}

	async settings() {
		return /** @type {SettingsAnswer} */ (await this.json("/api/settings"));
	}

	async changeSettings(patch) {
		return /** @type {SettingsAnswer} */ (await this.json("/api/settings", { method: "PATCH", body: patch }));
	}

	async agents() {
		const answer = /** @type {{ data: { id: string, name?: string, enabled?: boolean }[] }} */ (await this.json("/api/agents"));
		return answer.data;
	}

	async doctor() {
		const answer = /** @type {{ data: DoctorRow[] }} */ (await this.json("/api/doctor"));
		return answer.data;
	}

	async conversations({ q = "", before = null, limit = 20, signal } = {}) {
		const query = new URLSearchParams({ limit: String(limit), ...(q ? { q } : {}), ...(before ? { before } : {}) });
		return /** @type {{ data: ConversationRow[], has_more: boolean, next: string | null }} */ (
			await this.json(`/v1/conversations?${query}`, { signal }));
	}

	/**
	 * @param {string} id
	 * @param {{ limit?: number, signal?: AbortSignal }} [options] With `limit` its last messages come along.
	 */
	async conversation(id, { limit, signal } = {}) {
		return /** @type {ConversationRow} */ (await this.json(`${route(id)}${limit ? `?limit=${limit}` : ""}`, { signal }));
	}

	async messages(id, { signal, ...wanted } = {}) {
		const given = Object.entries(wanted).filter(([, value]) => value !== undefined);
		const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
		return /** @type {{ data: MessageRow[], has_more: boolean, next: string | null }} */ (
			await this.json(`${route(id)}/messages?${query}`, { signal }));
	}

	async cancel(id) {
		return this.json(`${route(id)}/cancel`, { method: "POST", body: {} });
	}

	/**
	 * Says something to a conversation that is being answered.
	 * @param {string} id
	 * @param {string} content
	 * @param {"steer" | "follow_up"} [mode]
	 */
	async queue(id, content, mode = "steer") {
		return /** @type {{ id: string, position: number, running: boolean }} */ (
			await this.json(`${route(id)}/queue`, { method: "POST", body: { content, mode } }));
	}

	async queued(id) {
		const answer = /** @type {{ data: QueuedRow[] }} */ (await this.json(`${route(id)}/queue`));
		return answer.data;
	}

	async unqueue(id, message) {
		return this.json(`${route(id)}/queue/${encodeURIComponent(message)}`, { method: "DELETE" });
	}

	async rename(id, title) {
		return this.json(route(id), { method: "PATCH", body: { title } });
	}

	async remove(id) {
		return this.json(route(id), { method: "DELETE" });
	}

	async compact(id, wanted = {}) {
		return /** @type {{ compacted: boolean, before: number, after: number, seconds: number }} */ (
			await this.json(`${route(id)}/compact`, { method: "POST", body: wanted }));
	}

	async undo(id) {
		return this.json(`${route(id)}/compact/undo`, { method: "POST", body: {} });
	}

	async vaultChanges() {
		const answer = /** @type {{ data: ChangeRow[] }} */ (await this.json("/api/vault/changes"));
		return answer.data;
	}

	async undoChange(change) {
		return /** @type {{ told: string }} */ (await this.json(`/api/vault/changes/${encodeURIComponent(change)}/undo`, { method: "POST", body: {} }));
	}

	/**
	 * Counts messages with the model's own tokenizer, as they would be sent.
	 * @param {string} model
	 * @param {ChatMessage[]} messages
	 * @param {AbortSignal} [signal]
	 */
	async countTokens(model, messages, signal) {
		const answer = /** @type {{ input_tokens: number }} */ (
			await this.json("/v1/chat/completions/input_tokens", { method: "POST", body: { model, messages }, signal }));
		return answer.input_tokens;
	}
}

function route(id) {
	return `/v1/conversations/${encodeURIComponent(id)}`;
}

function abortOf(signal) {
	return new Promise((_, fail) => {
		const leave = () => fail(new DOMException("The request was given up.", "AbortError"));
		if (signal.aborted) leave();
		else signal.addEventListener("abort", leave, { once: true });
	});
}

function headerIn(headers, name) {
	const found = Object.keys(headers).find((key) => key.toLowerCase() === name.toLowerCase());
	return found === undefined ? null : headers[found];
}

// chat/items.js

// What is shown of a conversation: one item for each message or turn, made of the messages that elbowroom keeps.

function itemOf(role, text) {
	return { id: "", role, text, thought: "", steps: [], status: "complete", at: Date.now() / 1000, between: [], recalled: [], sent: null };
}

/**
 * Returns the last question where elbowroom does not know it, since asking failed before it was there.
 * @param {Item[]} items
 * @param {Item[]} kept
 */
function unheard(items, kept) {
	const last = items.findLast(({ status }) => status === "complete");
	const isKnown = !last || last.role !== "user" || last.id || kept.some(({ role, text }) => role === "user" && text === last.text);
	return isKnown ? [] : [last];
}

function messageOf(item) {
	return item.sent ?? { role: item.role, content: item.text };
}

/**
 * Returns what is shown for the messages that elbowroom keeps: one item for each turn, as its client has seen it.
 * @param {import("../server/server.js").MessageRow[]} rows
 */
function itemsOf(rows) {
	const items = [];
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

function itemFor(row) {
	if (row.turn) return { ...itemOf("assistant", ""), id: row.id, at: row.created };
	const role = row.message.role === "user" ? "user" : row.message.role === "assistant" ? "assistant" : "system";
	return { ...itemOf(role, textOf(row.message)), id: row.id, at: row.created, recalled: row.recalled ?? [], sent: row.message };
}

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

function textOf({ content }) {
	if (typeof content === "string") return content;
	return (content ?? []).map((part) => part.text ?? (part.type === "image_url" ? "[image]" : `[${part.type}]`)).join("\n");
}

/**
 * Returns the arguments of a call as an object, empty where they are none.
 * @param {Step} step
 */
function argumentsOf(step) {
	const value = parsed(step.arguments);
	return isObject(value) ? value : {};
}

// server/stream.js

// One chat request, whose answer is read as it streams.

const IN_ONE_PIECE = "This Obsidian lets no answer stream from this address, so it comes in one piece.";

/**
 * Asks a model and yields what it answers. Leaving the loop, or the signal, closes the connection.
 * @param {import("./server.js").Server} server
 * @param {{ model: string, messages: import("./server.js").ChatMessage[] } & Record<string, unknown>} body
 * @param {{ conversation?: string, signal?: AbortSignal }} [options]
 * @returns {AsyncGenerator<StreamEvent, void, void>}
 * @throws {ServerError} Also where the stream ends before it is complete.
 */
async function* streamChat(server, body, { conversation = "", signal } = {}) {
	const headers = server.headers({
		"Content-Type": "application/json", "X-Elbowroom-Events": "1", ...(conversation ? { "X-Conversation-Id": conversation } : {}),
	});
	const url = server.url("/v1/chat/completions");
	const sent = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
	let response;
	try {
		// Obsidian's requestUrl can neither stream nor be stopped, so this one request is made by the window.
		response = await window.fetch(url, { method: "POST", headers, body: sent, cache: "no-store", redirect: "error", ...(signal ? { signal } : {}) });
	} catch (error) {
		if (signal?.aborted) throw error;
		if (await mayAsk(server)) throw new ServerError("The connection was lost before the answer began. Ask again.", 0);
		yield* inOnePiece(server, body, { conversation, signal });
		return;
	}
	if (!response.ok) throw errorOf(response.status, await response.text(), (name) => response.headers.get(name));
	yield { type: "begun", conversation: response.headers.get("X-Conversation-Id") || conversation };
	yield* eventsOf(response);
}

/**
 * Tells whether the window may ask this address: then a question that failed may have arrived, and is not asked twice.
 * @param {import("./server.js").Server} server
 */
async function mayAsk(server) {
	return window.fetch(server.url("/v1/models"), { headers: server.headers(), cache: "no-store", redirect: "error" }).then(() => true, () => false);
}

async function* inOnePiece(server, body, { conversation, signal }) {
	await server.health(); // nothing answers at all: that is another sentence, and nothing is asked twice
	yield { type: "whole", text: IN_ONE_PIECE };
	if (conversation) yield { type: "begun", conversation }; // so that it can be stopped while it is written
	const answer = /** @type {Completion} */ (await server.json("/v1/chat/completions", {
		method: "POST", body: { ...body, stream: false }, signal: signal ?? null, headers: conversation ? { "X-Conversation-Id": conversation } : {},
	}));
	const choice = answer.choices?.[0];
	if (choice?.message?.reasoning_content) yield { type: "thought", text: choice.message.reasoning_content };
	if (choice?.message?.content) yield { type: "text", text: choice.message.content };
	if (answer.usage) yield { type: "usage", usage: answer.usage };
	yield { type: "end", reason: choice?.finish_reason ?? "stop" };
}

async function* eventsOf(response) {
	let reason = "";
	for await (const data of dataOf(response)) {
		if (data === "[DONE]") {
			yield { type: "end", reason: reason || "stop" };
			return;
		}
		const chunk = parsed(data);
		if (!isObject(chunk)) continue;
		if (isObject(chunk.error)) throw errorOf(Number(chunk.error.status) || 500, data, () => null);
		for (const event of eventsIn(chunk)) yield event;
		const choice = firstOf(chunk.choices);
		reason = typeof choice.finish_reason === "string" ? choice.finish_reason : reason;
	}
	throw new ServerError("The answer broke off before its end: the connection to elbowroom was lost.", 0, { code: "stream_cut" });
}

function eventsIn(chunk) {
	const events = [];
	const { delta } = firstOf(chunk.choices);
	const { content, reasoning_content: thought } = isObject(delta) ? delta : /** @type {Record<string, unknown>} */ ({});
	if (typeof thought === "string" && thought) events.push({ type: "thought", text: thought });
	if (typeof content === "string" && content) events.push({ type: "text", text: content });
	if (isObject(chunk.event) && isObject(chunk.event.data)) {
		const { description, done } = chunk.event.data;
		const data = isObject(chunk.elbowroom) ? chunk.elbowroom : {};
		events.push({ type: "notice", kind: String(data.kind ?? ""), text: String(description ?? ""), done: done !== false, data });
	}
	if (isObject(chunk.usage)) events.push({ type: "usage", usage: chunk.usage });
	return events;
}

function firstOf(choices) {
	const first = /** @type {unknown} */ (Array.isArray(choices) ? choices[0] : undefined);
	return isObject(first) ? first : {};
}

/**
 * Yields what each `data:` line of an event stream holds, however its bytes are cut.
 * @param {Response} response
 * @returns {AsyncGenerator<string, void, void>}
 */
async function* dataOf(response) {
	if (!response.body) return;
	const reader = response.body.getReader();
	const decoder = new TextDecoder();
	let rest = "";
	try {
		for (;;) {
			const { value, done } = await reader.read().catch((error) => { throw cutBy(error); });
			const lines = (rest + decoder.decode(value, { stream: !done })).split(/\r\n|\n|\r(?!$)/);
			rest = done ? "" : lines.pop() ?? "";
			for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
			if (done) return;
		}
	} finally {
		reader.cancel().catch(() => {}); // it may be closed already
	}
}

function cutBy(error) {
	if (isAbort(error)) return error;
	return new ServerError("The answer broke off before its end: the connection to elbowroom was lost.", 0, { code: "stream_cut" });
}

// chat/chat.js

// A conversation as the view shows it: what was said, what runs, and how full the window is. It knows no element.

const PAGE = 200;
const MOST_PAGES = 100;
const POLL_MS = 1000;
const AGAIN_MS = 2000;
const MOMENT_MS = 1000;

class Chat extends Events {
	/** The id or the name by which elbowroom knows the conversation. */
	id = newName();
	title = "";
	model = "";
	items = [];
	compactions = [];
	context = null;
	queue = [];
	/** What happens beside the answer, in words; empty for nothing. */
	notice = "";
	problem = null;
	isKept = false;
	isAway = false;
	/** Whether another program's answer to this conversation runs. */
	runsElsewhere = false;
	version = "";
	#stopping = null;
	#answering = Promise.resolve();
	#reading = Promise.resolve();
	/** Whether all of it is here: an answer without what was said before would be one without its context. */
	#isWhole = true;
	#round = 0;
	#isClosed = false;
	#timer = null;

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
	changed(what) {
		this.trigger("changed", what);
	}

	/** Begins a new conversation with this agent or model. */
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

	#take(row) {
		this.title = row.title;
		this.context = row.context;
		this.compactions = row.compactions ?? this.compactions;
		this.version = versionOf(row);
		this.runsElsewhere = row.status === "running" && !this.isRunning;
		this.trigger("context", row.context);
	}

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
	async #rows(id) {
		const rows = [];
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
function commandIn(text) {
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

// view/gauge.js

// How full a window is: a bar with marks where the older part is summarised and where an answer is stopped.

function inThousands(value) {
	return value.toLocaleString("en-GB");
}

/**
 * Returns a share in percent.
 * @param {number} share
 */
function percent(share) {
	return `${Math.round(share * 100)} %`;
}

/**
 * Works out what a gauge shows.
 * @param {ContextFill | null | undefined} context
 * @returns {{ share: number, state: "unknown" | "calm" | "near" | "full", words: string }}
 */
function fillOf(context) {
	if (!context || !(context.window > 0)) return { share: 0, state: "unknown", words: "Window not known yet" };
	const { tokens, window, trigger, stop_at: stopAt } = context;
	const state = stopAt && tokens >= stopAt ? "full" : trigger && tokens >= trigger ? "near" : "calm";
	const words = `${percent(tokens / window)} · ${inThousands(tokens)} of ${inThousands(window)} tokens`;
	return { share: Math.min(1, tokens / window), state, words };
}

/** The bar, as an element with the role of a meter. */
class Gauge {
	constructor(parent) {
		this.element = parent.createDiv({ cls: "elbowroom-gauge", attr: { role: "meter", "aria-label": "Fill of the window", "aria-valuemin": "0" } });
		this.bar = this.element.createDiv({ cls: "elbowroom-gauge-bar" });
		this.marks = ["summarised from", "answer stopped at"].map((told) => ({ told, element: this.element.createDiv({ cls: "elbowroom-gauge-mark" }) }));
		this.show(null);
	}

	show(context) {
		const { share, state, words } = fillOf(context);
		this.element.dataset.state = state;
		this.bar.setCssProps({ "--elbowroom-share": String(share) });
		this.element.setAttrs({
			"aria-valuemax": String(context?.window || 1), "aria-valuenow": String(Math.min(context?.tokens ?? 0, context?.window || 1)), "aria-valuetext": words,
		});
		this.element.title = [words, ...this.place(context)].join("\n");
	}

	/**
	 * Puts the marks where they belong; returns what they mean.
	 * @param {ContextFill | null | undefined} context
	 */
	place(context) {
		const places = [context?.trigger, context?.stop_at];
		return this.marks.flatMap(({ told, element }, index) => {
			const at = places[index];
			element.toggle(Boolean(at && context?.window));
			if (!at || !context?.window) return [];
			element.setCssProps({ "--elbowroom-share": String(at / context.window) });
			return [`${told} ${percent(at / context.window)}`];
		});
	}
}

// settings/preferences.js

// What a person chose in this vault. All else is a setting of elbowroom itself, and is kept there.

const SECRET = "elbowroom-token";

const DEFAULTS = Object.freeze({
	address: "http://127.0.0.1:2345",
	secret: "",
	token: "",
	user: "",
	agent: "",
	noticesAsPopups: true,
	noteContext: "none",
	seen: {},
});

/**
 * Returns preferences from what a file holds, whatever that is: what has another type is as by default, and what a newer
 * version has added stays.
 * @param {unknown} data
 * @returns {Preferences}
 */
function preferencesFrom(data) {
	const kept = isObject(data) ? data : {};
	const same = Object.entries(DEFAULTS).filter(([key, value]) => typeof kept[key] === typeof value && isObject(kept[key]) === isObject(value));
	const preferences = /** @type {Preferences} */ ({ ...kept, ...DEFAULTS, ...Object.fromEntries(same.map(([key]) => [key, kept[key]])) });
	if (!["none", "selection", "note"].includes(preferences.noteContext)) preferences.noteContext = DEFAULTS.noteContext;
	return preferences;
}

/**
 * Returns the address before all routes, from what people paste: with /v1, a slash or a whole route behind it, or
 * without http:// before it. Empty where it is no address.
 * @param {string} typed
 */
function baseAddress(typed) {
	const text = typed.trim();
	if (!text) return "";
	try {
		const url = new URL(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`);
		if (!/^https?:$/.test(url.protocol) || !url.hostname) return "";
		const path = url.pathname.replace(/\/+/g, "/").replace(/(\/v1|\/chat|\/completions|\/models|\/)+$/, "");
		return url.origin + path;
	} catch {
		return "";
	}
}

/**
 * Returns the token that goes with each request, empty for none.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
function tokenOf(app, preferences) {
	return (preferences.secret && app.secretStorage?.getSecret(preferences.secret)) || preferences.token;
}

/**
 * Moves a token out of the plugin's file, where another Obsidian has left it. Returns whether there was one to move.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
function moveToken(app, preferences) {
	const { secret, token } = preferences;
	if (!token || !app.secretStorage) return false;
	if (secret && app.secretStorage.getSecret(secret)) preferences.token = "";
	else keepToken(app, preferences, token);
	return true;
}

/**
 * Puts the token where it belongs: into Obsidian's secret storage, so that the vault has only its name.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 * @param {string} token
 */
function keepToken(app, preferences, token) {
	if (!app.secretStorage) {
		preferences.token = token;
		return;
	}
	app.secretStorage.setSecret(SECRET, token); // never over a secret that the person chose: others may use it
	preferences.secret = SECRET;
	preferences.token = "";
}

// notes/safe_markdown.js

// What a model writes is shown as Markdown, but asks no other server for anything and runs nothing.

const JOINER = "\u2060"; // takes no place on the screen
const FENCE = /^((?:[ \t]|>|[-*+][ \t]|\d+[.)][ \t]|\[\^[^\]\n]*\]:)*(?:`{3,}|~{3,})[ \t]*)([^\s`]+)([^\n`]*)$/gm;
const RUN_IN_LINE = /`(?=\s*(?:\$?=|jsx-|[A-Z]+\[))/g; // by plugins that read code in a line, such as Dataview
const RUN_BY_TEMPLATES = /<(?=%[-_]?\s*[*~]?\+)/g;
const LOADED_BY_FORMULAS = /\\(?=style|href|class|cssId|bbox|mmlToken|require|csname)/g;
const LINKS = ["http:", "https:", "mailto:"];
const LANGUAGES = new Set(("asm bash bat bibtex c c++ clojure cmake conf cpp cs csharp css csv dart diff docker dockerfile elixir erlang fortran fsharp gherkin go graphql groovy h haskell html http ini "
	+ "java javascript jinja js json json5 jsonc jsx julia kotlin latex less lisp log lua makefile markdown matlab md nginx nix objectivec ocaml pascal perl php plaintext powershell properties protobuf ps1 "
	+ "py python r regex rs ruby rust sass scala scheme scss sh shell sql svg swift tex text toml ts tsx txt typescript vb vim wasm xml yaml yml zig zsh").split(" "));

/**
 * Returns Markdown in which pictures and embedded notes are links, tags are text, and no code has a form that a plugin may
 * run. Code in blocks that begin at the edge stays as it is, to be copied.
 * @param {string} text
 */
function safeMarkdown(text) {
	const lines = text.replace(/\r\n?/g, "\n");
	const parts = /^\s*---|\$\$|%%/.test(lines) ? [{ text: lines, isCode: false }] : partsOf(lines); // properties, formulas and comments may hide where a block ends
	const safe = parts.map((part) => (part.isCode ? part.text : defused(part.text))).join("\n");
	return safe.replace(RUN_BY_TEMPLATES, `<${JOINER}`).replace(FENCE, (line, before, language) => (LANGUAGES.has(language.toLowerCase()) ? line : before));
}

function defused(text) {
	return text.replace(/<(?=[a-z/!?%])/gi, `<${JOINER}`).replace(/!\[/g, `!${JOINER}[`).replace(RUN_IN_LINE, `\`${JOINER}`).replace(LOADED_BY_FORMULAS, `\\${JOINER}`);
}

/**
 * Opens notes by the links in an element, and stops those that lead neither to a note nor to the web: they may run something.
 * @param {import("obsidian").App} app
 * @param {HTMLElement} element
 */
function followLinks(app, element) {
	const follow = (event) => {
		const link = /** @type {Element} */ (event.target).closest("a");
		if (!link || event.button > 1) return;
		const href = link.getAttribute("href") ?? link.getAttribute("xlink:href") ?? "";
		const note = link.getAttribute("data-href");
		const isSafe = URL.canParse(href, DEFAULTS.address) && LINKS.includes(new URL(href, DEFAULTS.address).protocol);
		if (isSafe && note === null) return;
		event.preventDefault();
		event.stopPropagation();
		if (!isSafe) new Notice(`This link is not followed, since it may run something: ${href}`);
		else if (note) void app.workspace.openLinkText(note, "", event.button === 1 || event.ctrlKey || event.metaKey ? "tab" : false);
	};
	for (const kind of /** @type {const} */ (["click", "auxclick"])) element.addEventListener(kind, follow, true);
}

/**
 * Parts a text into blocks of code that begin at the edge, where nothing but their end can end them, and the rest.
 * @param {string} text
 */
function partsOf(text) {
	const parts = [];
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

// view/compaction_view.js

// What a person sees of a compaction: the line where it happened, and what is told while it runs.

const HIDDEN_AFTER_MS = 6000;
const NO_SUMMARY = { reused: "Another conversation with the same beginning was compacted before, and its summary stands here too." };

/**
 * Returns the line of a compaction, which opens to its summary; the newest one can be taken back.
 * @param {import("./chat_view.js").ChatView} view
 * @param {import("../server/server.js").CompactionRow} compaction
 * @param {boolean} isNewest
 */
function compactionLine(view, compaction, isNewest) {
	const { before, after, rung, summary, undone, messages_removed: removed } = compaction;
	const line = createEl("details", { cls: "elbowroom-compaction", attr: { "data-at": String(compaction.at) } });
	const words = `Compacted: ${inThousands(before)} to ${inThousands(after)} tokens`;
	line.createEl("summary", { text: undone ? `${words}, taken back` : words });
	line.createDiv({ cls: "elbowroom-quiet", text: removed === null ? "What stands above is kept, though the model reads the summary." : `The model reads this in place of ${removed} messages above, which are all kept.` });
	const text = line.createDiv({ cls: "elbowroom-summary markdown-rendered" });
	line.addEventListener("toggle", () => void MarkdownRenderer.render(view.app, safeMarkdown(summary || NO_SUMMARY[rung] || "There is no summary."), text, "", view), { once: true });
	const buttons = new Setting(line);
	buttons.addButton((button) => button.setButtonText("Show the originals").onClick(() => new OriginalsModal(view, compaction).open()));
	if (isNewest && !undone) buttons.addButton((button) => button.setButtonText("Take back").onClick(() => void view.chat.undo()));
	return line;
}

/** The messages that a summary stands for, word for word. */
class OriginalsModal extends Modal {
	constructor(view, compaction) {
		super(view.app);
		this.chat = view.chat;
		this.compaction = compaction;
	}

	onOpen() {
		this.setTitle("What the summary stands for");
		void this.show();
	}

	async show() {
		try {
			for await (const row of this.rows()) {
				const item = this.contentEl.createDiv({ cls: "elbowroom-original" });
				item.createDiv({ cls: "elbowroom-who", text: `${row.number}. ${row.message.role}` });
				item.createDiv({ cls: "elbowroom-summary mod-verbatim", text: [textOf(row.message), ...(row.message.tool_calls ?? []).map((call) => `${call.function.name} ${call.function.arguments}`)].join("\n") });
			}
		} catch (error) {
			this.contentEl.createDiv({ cls: "elbowroom-problem", text: errorWords(error) });
		}
	}

	/** @returns {AsyncGenerator<import("../server/server.js").MessageRow, void, void>} Those that it removed, the first first. */
	async* rows() {
		const { at, messages_removed: removed } = this.compaction;
		let left = removed ?? Infinity;
		let after = null;
		do {
			const page = /** @type {Awaited<ReturnType<import("../server/server.js").Server["messages"]>>} */ (await this.chat.server.messages(this.chat.id, { limit: 200, ...(after ? { after } : {}) }));
			for (const row of page.data) {
				if (row.created > at || left <= 0) return;
				left -= 1;
				yield row;
			}
			after = page.has_more ? page.next : null;
		} while (after);
	}

	onClose() {
		this.contentEl.empty();
	}
}

/** Tells of compactions in Obsidian's notices: one for each, which changes while it runs. */
class CompactionNotices {
	#open = null;

	constructor(plugin) {
		this.plugin = plugin;
	}

	hear(event) {
		if (event.type === "whole") new Notice(event.text);
		if (event.type !== "notice" || !this.plugin.preferences.noticesAsPopups) return;
		if (event.kind === "compacting") {
			if (this.#open) this.#open.setMessage(event.text);
			else this.#open = new Notice(event.text, 0);
		} else if (this.#open && (event.kind === "compacted" || event.kind === "not compacted")) {
			this.#open.setMessage(event.text);
			this.end(HIDDEN_AFTER_MS);
		} else if (event.kind === "cut" || event.kind === "truncated") new Notice(event.text);
	}

	/** @param {number} [after] Milliseconds. */
	end(after = 0) {
		const notice = this.#open;
		this.#open = null;
		if (notice) window.setTimeout(() => notice.hide(), after);
	}
}

// notes/attachments.js

// What goes along with a question: notes and selections, in a form that elbowroom shortens where it is too long.

const MOST_AT_ONCE = 20;
const MOST_BYTES = 5_000_000;
const BLOCK = /<(vault_note|selected_text) path="([^"\n]*)">\n([^]*?)\n<\/\1>\n*/gy; // one right behind the other

/**
 * Returns a question with what goes along before it.
 * @param {Attachment[]} attachments
 * @param {string} question
 */
function withAttachments(attachments, question) {
	return [...attachments.map(blockOf), question].join("\n\n");
}

/**
 * Returns the block that elbowroom knows as a note or a selection. An end tag in the text itself would end it early.
 * @param {Attachment} attachment
 */
function blockOf({ kind, path, text }) {
	return `<${kind} path="${path.replaceAll('"', "'")}">\n${text.replaceAll(`</${kind}>`, `<\\/${kind}>`)}\n</${kind}>`;
}

/**
 * Parts a message into what went along and the question itself.
 * @param {string} text
 * @returns {{ attachments: Attachment[], question: string }}
 */
function withoutAttachments(text) {
	const attachments = [];
	let end = 0;
	for (const found of text.matchAll(BLOCK)) {
		const [all, kind = "", path = "", content = ""] = found;
		attachments.push({ kind: kind === "vault_note" ? kind : "selected_text", path, text: content.replaceAll(`<\\/${kind}>`, `</${kind}>`), tokens: null });
		end += all.length;
	}
	return { attachments, question: text.slice(end) };
}

/**
 * @param {import("obsidian").App} app
 * @param {TFile} file
 * @returns {Promise<Attachment>}
 * @throws {Error} A sentence, where it cannot go along.
 */
async function noteAttachment(app, file) {
	if (!["md", "txt", "canvas"].includes(file.extension)) throw new Error(`${file.name} is no note, so it cannot go along.`);
	if (file.stat.size > MOST_BYTES) throw new Error(`${file.name} is too large to go along.`);
	return { kind: "vault_note", path: file.path, text: await app.vault.cachedRead(file), tokens: null };
}

/**
 * Returns what is selected in the note that was used last, or all of that note.
 * @param {import("obsidian").App} app
 * @param {"selection" | "note"} what
 * @returns {Promise<Attachment | null>}
 */
async function currentAttachment(app, what) {
	const view = lastNote(app);
	if (!view?.file) return null;
	if (what === "note") return { ...await noteAttachment(app, view.file), text: view.editor.getValue() };
	const text = view.editor.getSelection();
	return text ? { kind: "selected_text", path: view.file.path, text, tokens: null } : null;
}

/**
 * Returns the note that was used last, also while the chat is.
 * @param {import("obsidian").App} app
 */
function lastNote(app) {
	const view = app.workspace.getActiveViewOfType(MarkdownView) ?? app.workspace.getMostRecentLeaf()?.view;
	return view instanceof MarkdownView ? view : null;
}

/**
 * Returns what was dropped: notes by their links, all notes of a folder, or a text.
 * @param {import("obsidian").App} app
 * @param {DataTransfer | null} data
 * @returns {Promise<Attachment[]>}
 * @throws {Error} A sentence, where it cannot go along.
 */
async function fromDrop(app, data) {
	const text = data?.getData("text/plain") ?? "";
	const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
	if (!lines.length) throw new Error("Drop a note, a folder or a text here. A file from outside of the vault has to be put into it first.");
	const files = lines.map((line) => fileOf(app, line));
	if (files.every((file) => file !== null)) return Promise.all(notesIn(files).map((file) => noteAttachment(app, file)));
	if (lines.some((line) => line.startsWith("obsidian://"))) throw new Error("This is no note of this vault, so it cannot go along.");
	return [{ kind: "selected_text", path: lastNote(app)?.file?.path ?? "", text, tokens: null }];
}

/**
 * @param {import("obsidian").App} app
 * @param {string} dropped An address of Obsidian's, a link, or a whole path.
 */
function fileOf(app, dropped) {
	const link = addressed(app, dropped) ?? /^!?\[\[([^\]|#]+)[^\]]*\]\]$/.exec(dropped)?.[1];
	if (!link) return app.vault.getAbstractFileByPath(dropped);
	return app.vault.getAbstractFileByPath(link) ?? app.metadataCache.getFirstLinkpathDest(link, "");
}

function addressed(app, dropped) {
	if (!dropped.startsWith("obsidian://") || !URL.canParse(dropped)) return null;
	const { searchParams } = new URL(dropped);
	return [null, app.vault.getName()].includes(searchParams.get("vault")) ? searchParams.get("file") : null;
}

/**
 * Returns files and the notes of folders, whatever they are nested in.
 * @param {import("obsidian").TAbstractFile[]} dropped
 * @returns {TFile[]}
 * @throws {Error} Where there are none, or too many.
 */
function notesIn(dropped) {
	const found = dropped.flatMap((each) => (each instanceof TFolder ? notesOf(each) : each instanceof TFile ? [each] : []));
	if (!found.length) throw new Error("There is no note in this folder.");
	if (found.length > MOST_AT_ONCE) throw new Error(`These are ${found.length} notes; at most ${MOST_AT_ONCE} go along at once.`);
	return [...new Set(found)];
}

function notesOf(folder) {
	return folder.children.flatMap((child) => (child instanceof TFolder ? notesOf(child) : child instanceof TFile && child.extension === "md" ? [child] : []));
}

/** Counts what is about to be sent with the model's own tokenizer, a moment after it has changed. */
class Counting {
	#counting = null;

	/**
	 * @param {import("../server/server.js").Server} server
	 * @param {() => void} tell Called when a number has come.
	 */
	constructor(server, tell) {
		this.server = server;
		this.tell = tell;
		this.soon = debounce((/** @type {string} */ model, /** @type {Attachment[]} */ attachments) => void this.#count(model, attachments), 300, true);
	}

	async #count(model, attachments) {
		this.stop();
		const { signal } = this.#counting = new AbortController();
		try {
			const none = await this.server.countTokens(model, [{ role: "user", content: "." }], signal);
			for (const attachment of attachments.filter(({ tokens }) => tokens === null)) {
				attachment.tokens = await this.server.countTokens(model, [{ role: "user", content: blockOf(attachment) }], signal) - none + 1;
				this.tell();
			}
		} catch {
			// what cannot be counted now has no number beside it
		}
	}

	stop() {
		this.soon.cancel();
		this.#counting?.abort();
	}
}

// notes/vault_changes.js

// What agents have changed in the notes: each change with links to its notes, and a way to take it back.

const WRITES = new Set(["vault_create", "vault_append", "vault_patch", "vault_rename", "vault_delete"]);
const AROUND_SECONDS = 1; // both times are of the clock of elbowroom

/**
 * Shows the changes that an agent made in one answer, as far as they can still be taken back. It asks elbowroom once
 * for each call that wrote; what is shown already stays, also when it is undone.
 * @param {import("../view/message_view.js").MessageView} message
 * @param {HTMLElement} parent
 */
async function showChanges(message, parent) {
	const { item, view } = message;
	const paths = new Set(item.steps.filter(isChange).flatMap(pathsOf));
	const made = String(item.steps.filter(isChange).length);
	if (!paths.size || parent.dataset.made === made) return;
	parent.dataset.made = made;
	try {
		const rows = await view.plugin.server.vaultChanges();
		const next = view.chat.items[view.chat.items.indexOf(item) + 1]?.at ?? Infinity;
		const known = new Set(parent.findAll(".elbowroom-change").map((row) => row.dataset.change));
		const own = rows.filter((row) => !known.has(row.id) && row.when >= item.at - AROUND_SECONDS && row.when < next && isOf(paths, row));
		parent.append(...own.reverse().map((row) => changeRow(message, row)));
	} catch (error) {
		const pair = error instanceof ServerError && error.needsPairing;
		parent.createDiv({ cls: "elbowroom-quiet", text: pair ? "Pair Obsidian in the plugin's settings to take changes of notes back here." : errorWords(error) });
	}
}

/**
 * Tells whether a call of a tool may have changed notes.
 * @param {import("../chat/items.js").Step} step
 */
function isChange(step) {
	return WRITES.has(step.name) && step.state === "completed";
}

function pathsOf(step) {
	const { path, new_path: moved } = argumentsOf(step);
	return [path, moved].filter((each) => typeof each === "string").map(bare);
}

/**
 * Tells whether a change is of one of these notes. A deleted one lies elsewhere now, so that only the words name it.
 * @param {Set<string>} paths
 * @param {import("../server/server.js").ChangeRow} change
 */
function isOf(paths, { what, notes }) {
	return notes.some((note) => paths.has(bare(note))) || [...paths].some((path) => bare(what).endsWith(` ${path}`));
}

/**
 * Returns a path as notes are compared: models write names in other letters, and without their ending.
 * @param {string} path
 */
function bare(path) {
	return path.normalize().toLowerCase().replace(/^\.?\//, "").replace(/\.md$/, "");
}

function changeRow(message, { id, agent, what, notes }) {
	const row = createDiv({ cls: "elbowroom-change", attr: { "data-change": id } });
	row.createSpan({ text: `${agent} ${what}` });
	for (const note of notes.filter((each) => !each.startsWith("."))) message.noteLink(row, note, note.split("/").at(-1) ?? note);
	const told = row.createSpan({ cls: "elbowroom-quiet", attr: { role: "status" } });
	const undo = row.createEl("button", { text: "Undo", attr: { type: "button", "aria-label": `Undo: ${what}` } });
	undo.addEventListener("click", async () => {
		undo.disabled = true;
		try {
			await saveNotes(message.view.app);
			told.setText((await message.view.plugin.server.undoChange(id)).told);
			undo.remove();
		} catch (error) {
			new Notice(errorWords(error));
			undo.disabled = false;
			if (error instanceof ServerError && error.code === "no_such_change") undo.remove();
		}
	});
	return row;
}

/**
 * Writes what is being typed into its notes, so that elbowroom takes back no change behind a person's words.
 * @param {import("obsidian").App} app
 */
async function saveNotes(app) {
	for (const { view } of app.workspace.getLeavesOfType("markdown")) if (view instanceof MarkdownView) await view.save();
}

// view/message_view.js

// One message of a conversation, and what can be done with it.

const UNNAMED = "Answer";
const LONGEST_NAME = 60;
/** How often a text is drawn at most while it streams. */
const DRAW_MS = 200;

/**
 * Returns a button with an icon, named by what it does.
 * @param {HTMLElement} parent
 * @param {string} icon
 * @param {string} name
 * @param {() => unknown} act
 */
function iconButton(parent, icon, name, act) {
	const button = parent.createEl("button", { cls: "clickable-icon", attr: { "aria-label": name, type: "button" } });
	setIcon(button, icon);
	button.addEventListener("click", () => void act());
	return button;
}

/** Shows one message; it is drawn anew where it has changed. */
class MessageView extends Component {
	/** What Markdown has loaded; it goes with what it has drawn. */
	#drawn = new Component();
	#shown = "";

	constructor(view, item) {
		super();
		this.view = view;
		this.item = item;
		this.element = createDiv({ cls: `elbowroom-message mod-${item.role}` });
		this.element.createDiv({ cls: "elbowroom-who", text: item.role === "user" ? "You" : view.chat.model || "Answer" });
		this.steps = this.element.createDiv();
		this.thought = this.element.createEl("details", { cls: "elbowroom-thought" });
		this.thought.createEl("summary", { text: "Thought" });
		this.thoughtText = this.thought.createDiv();
		this.body = this.element.createDiv({ cls: "elbowroom-text" });
		this.marks = this.element.createDiv({ cls: "elbowroom-marks" });
		this.changes = this.element.createDiv();
		this.actions = this.element.createDiv({ cls: "elbowroom-actions" });
	}

	/** Draws it, where something of it has changed. */
	async draw() {
		const { item } = this;
		const isLast = this.view.chat.items.at(-1) === item;
		const now = JSON.stringify([item.text, item.thought, item.steps, item.status, item.between, isLast, this.view.chat.isBusy]);
		if (now === this.#shown) return;
		this.#shown = now;
		this.element.setAttr("aria-busy", String(item.status === "streaming"));
		this.thought.toggle(item.thought !== "");
		this.thoughtText.setText(item.thought);
		this.steps.replaceChildren(...item.steps.map((step) => this.stepRow(step)));
		this.showMarks();
		this.showActions(isLast);
		void showChanges(this, this.changes);
		await this.showText();
	}

	async showText() {
		const { question, attachments } = this.item.role === "user" ? withoutAttachments(this.item.text) : { question: this.item.text, attachments: [] };
		const drawn = this.addChild(new Component());
		const next = createDiv();
		for (const { path, kind } of attachments) this.noteLink(next.createSpan({ cls: "elbowroom-chip" }), path, kind === "selected_text" ? `Selection of ${path}` : path);
		const text = next.createDiv({ cls: "markdown-rendered" });
		try {
			// For no note: other plugins would take its place for that of the text, and may change what stands there.
			await MarkdownRenderer.render(this.view.app, safeMarkdown(question), text, "", drawn);
		} catch {
			text.setText(question); // another plugin has failed at it
		}
		this.removeChild(this.#drawn);
		this.#drawn = drawn;
		this.body.replaceChildren(...next.childNodes);
	}

	showMarks() {
		const { status, between, recalled } = this.item;
		this.marks.empty();
		for (const said of between) this.marks.createDiv({ cls: "elbowroom-between", text: `Taken in: ${said}` });
		if (recalled.length) {
			const row = this.marks.createEl("details", { cls: "elbowroom-step" });
			row.createEl("summary", { text: `Came back with it: ${recalled.length}` });
			for (const { role, text } of recalled) row.createEl("pre", { text: `${role}: ${text}` });
		}
		if (status === "interrupted") this.marks.createDiv({ cls: "elbowroom-problem", text: "Interrupted: what was said until then is kept." });
	}

	showActions(isLast) {
		const { chat } = this.view;
		this.actions.empty();
		if (this.item.status === "streaming") return;
		iconButton(this.actions, "copy", "Copy", () => this.copy());
		if (this.item.role === "user") {
			if (!chat.isBusy) iconButton(this.actions, "pencil", "Edit and ask again", () => this.view.composer?.edit(this.item));
		} else {
			iconButton(this.actions, "text-cursor-input", "Insert at the cursor", () => this.insert());
			iconButton(this.actions, "file-plus", "Save as a note", () => this.saveAsNote());
		}
		if (isLast && !chat.isBusy) iconButton(this.actions, "refresh-cw", this.item.role === "user" ? "Ask again" : "Try again", () => chat.retry());
	}

	async copy() {
		await navigator.clipboard.writeText(this.item.text);
		new Notice("Copied.");
	}

	insert() {
		const note = lastNote(this.view.app);
		if (!note) return new Notice("Open a note first, in which it can be inserted.");
		note.editor.setCursor(note.editor.getCursor("to")); // behind what is selected, not in its place
		note.editor.replaceSelection(this.item.text);
		return new Notice(`Inserted in ${note.file?.basename ?? "the note"}.`);
	}

	async saveAsNote() {
		const { app } = this.view;
		const from = app.workspace.getActiveFile()?.path ?? "";
		const name = nameFor(this.item.text);
		const folder = app.fileManager.getNewFileParent(from, `${name}.md`).path;
		try {
			const file = await app.vault.create(freePath(app, folder, name), this.item.text);
			await app.workspace.openLinkText(file.path, "", "tab");
		} catch (error) {
			new Notice(`The note could not be saved. ${error instanceof Error ? error.message : ""}`);
		}
	}

	stepRow(step) {
		const row = createEl("details", { cls: "elbowroom-step" });
		const summary = row.createEl("summary");
		const { path } = argumentsOf(step);
		summary.createEl("code", { text: step.name });
		if (typeof path === "string") this.noteLink(summary.createSpan(), path, path);
		if (step.state && step.state !== "completed") summary.createSpan({ cls: "elbowroom-state", text: step.state });
		row.createEl("pre", { text: step.arguments });
		if (step.result) row.createEl("pre", { text: step.result });
		return row;
	}

	noteLink(parent, path, words) {
		const link = parent.createEl("a", { cls: "internal-link", text: words, href: "#" });
		link.addEventListener("click", (event) => {
			event.preventDefault();
			void this.view.app.workspace.openLinkText(path, "", event.ctrlKey || event.metaKey ? "tab" : false);
		});
	}
}

/**
 * Returns a name for a note from its first line.
 * @param {string} text
 */
function nameFor(text) {
	const line = text.split("\n").find((each) => each.trim()) ?? "";
	const plain = line.replace(/[\\/:*?"<>|#^[\]`_]/g, " ").replace(/\s+/g, " ").trim();
	return plain.slice(0, LONGEST_NAME).trim().replace(/^\.+/, "") || UNNAMED;
}

function freePath(app, folder, name) {
	for (let number = 1; ; number++) {
		const path = normalizePath(`${folder}/${name}${number > 1 ? ` ${number}` : ""}.md`);
		if (!app.vault.getAbstractFileByPath(path)) return path;
	}
}

// view/composer.js

// Where a person writes: the text, what goes along with it and how many tokens that takes, and what waits.

const NOTHING = { text: "", attachments: [] };

class Composer {
	attachments = [];
	editing = null;
	/** Whether what stands in the note goes along by itself was changed by hand for this question. */
	#isChosen = false;
	/** What was written before a message was edited. */
	#draft = NOTHING;

	constructor(view, parent) {
		this.view = view;
		this.element = parent.createDiv({ cls: "elbowroom-composer" });
		this.waiting = this.element.createDiv({ cls: "elbowroom-queue" });
		this.chips = this.element.createDiv({ cls: "elbowroom-chips" });
		this.sum = this.element.createDiv({ cls: "elbowroom-sum", attr: { role: "status" } });
		this.input = this.element.createEl("textarea", { cls: "elbowroom-input", attr: { "aria-label": "Message", rows: "3", placeholder: "Ask anything. /compact and /new work too." } });
		this.buttons = this.element.createDiv({ cls: "elbowroom-buttons" });
		iconButton(this.buttons, "paperclip", "Add the note at work", () => this.addCurrent());
		this.stopButton = iconButton(this.buttons, "square", "Stop", () => view.chat.stop());
		this.sendButton = this.buttons.createEl("button", { cls: "mod-cta", text: "Send", attr: { type: "button" } });
		this.sendButton.addEventListener("click", () => void this.send());
		this.counting = new Counting(view.plugin.server, () => this.show());
		this.listen();
	}

	listen() {
		this.input.addEventListener("keydown", (event) => this.pressed(event));
		this.input.addEventListener("focus", () => void this.addByItself());
		this.element.addEventListener("dragover", (event) => event.preventDefault());
		this.element.addEventListener("drop", (event) => {
			event.preventDefault();
			void this.add(() => fromDrop(this.view.app, event.dataTransfer));
		});
	}

	pressed(event) {
		if (event.isComposing) return;
		if (event.key === "Enter" && !event.shiftKey) {
			event.preventDefault();
			void this.send();
		} else if (event.key === "Escape" && (this.view.chat.isRunning || this.editing)) {
			event.preventDefault();
			if (this.editing) this.letBe();
			else void this.view.chat.stop();
		}
	}

	/** Sends what was written; where that fails, it stays. A command goes alone: what is attached waits for a question. */
	async send() {
		const { chat } = this.view;
		const { attachments, editing } = this;
		const written = this.input.value;
		const question = written.trim();
		if (!question && !attachments.length) return;
		const isCommand = !editing && commandIn(question) !== null;
		const text = attachments.length && !isCommand ? withAttachments(attachments, question) : question;
		if (editing && !chat.edit(editing, text)) {
			new Notice("This cannot be asked now. Wait until the answer has ended, or copy what you wrote.");
			return;
		}
		if (isCommand) this.input.value = "";
		else this.clear();
		if (editing || await chat.send(text)) return;
		if (isCommand) new Notice("A conversation can be compacted once it has an answer, and while none is being written.");
		this.input.value = [written, this.input.value].filter(Boolean).join("\n\n");
		this.attachments = [...new Set([...attachments, ...this.attachments])];
		this.show();
	}

	/** Empties it; what was written before a message was edited comes back. */
	clear() {
		const { text, attachments } = this.#draft;
		this.#draft = NOTHING;
		this.input.value = text;
		Object.assign(this, { attachments, editing: null });
		this.#isChosen = attachments.length > 0;
		this.show();
	}

	edit(item) {
		const { attachments, question } = withoutAttachments(item.text);
		if (!this.editing) this.#draft = { text: this.input.value, attachments: this.attachments };
		Object.assign(this, { attachments, editing: item });
		this.#isChosen = true;
		this.input.value = question;
		this.show();
		this.input.focus();
	}

	letBe() {
		this.clear();
		this.input.focus();
	}

	/** Adds what the preferences say of the note at work, once for each question. */
	async addByItself() {
		const what = this.view.plugin.preferences.noteContext;
		if (what === "none" || this.#isChosen || this.attachments.length) return;
		const found = await currentAttachment(this.view.app, what).catch(() => null);
		if (found && !this.#isChosen && !this.attachments.length) this.take([found]);
	}

	async addCurrent() {
		await this.add(async () => {
			const selected = await currentAttachment(this.view.app, "selection") ?? await currentAttachment(this.view.app, "note");
			if (!selected) throw new Error("Open a note first, or drag one here.");
			return [selected];
		});
	}

	async addNote(file) {
		await this.add(async () => [await noteAttachment(this.view.app, file)]);
	}

	async add(find) {
		try {
			this.take(await find());
		} catch (error) {
			new Notice(errorWords(error));
		}
	}

	take(found) {
		const known = new Set(this.attachments.map(({ path, text }) => `${path}\n${text}`));
		this.attachments = [...this.attachments, ...found.filter(({ path, text }) => !known.has(`${path}\n${text}`))];
		this.#isChosen = true;
		this.show();
		this.counting.soon(this.view.chat.model, this.attachments);
	}

	/** Counts anew, for another model. */
	recount() {
		for (const attachment of this.attachments) attachment.tokens = null;
		if (this.attachments.length) this.counting.soon(this.view.chat.model, this.attachments);
		this.show();
	}

	show() {
		const { chat } = this.view;
		const { isBusy } = chat;
		this.chips.replaceChildren(...this.attachments.map((attachment) => this.chip(attachment)));
		this.sum.setText(this.sumWords());
		this.stopButton.toggle(isBusy);
		this.sendButton.setText(this.editing ? "Ask again" : isBusy ? "Say it meanwhile" : "Send");
		this.waiting.replaceChildren(...chat.queue.map((row) => this.waitingRow(row)));
	}

	/** Tells how much of the window all of it takes. */
	sumWords() {
		const counted = this.attachments.map(({ tokens }) => tokens);
		if (!counted.length || counted.includes(null)) return "";
		const sum = counted.reduce((/** @type {number} */ all, tokens) => all + (tokens ?? 0), 0);
		const window = this.view.window;
		if (!window) return `${inThousands(sum)} tokens go along.`;
		const free = window - (this.view.chat.context?.tokens ?? 0);
		const words = `${inThousands(sum)} tokens go along, ${percent(sum / window)} of the window.`;
		return sum > free ? `${words} That is more than is free: older messages are compacted, and what is longest is shortened.` : words;
	}

	chip(attachment) {
		const { kind, path, tokens } = attachment;
		const name = path.split("/").at(-1)?.replace(/\.md$/, "") || "Text";
		const chip = createSpan({ cls: "elbowroom-chip", attr: { title: path } });
		chip.createSpan({ text: kind === "selected_text" ? `Selection of ${name}` : name });
		chip.createSpan({ cls: "elbowroom-quiet", text: tokens === null ? "…" : `${inThousands(tokens)} tokens` });
		iconButton(chip, "x", `Leave ${name} out`, () => {
			this.attachments = this.attachments.filter((each) => each !== attachment);
			this.show();
			this.input.focus();
		});
		return chip;
	}

	waitingRow(row) {
		const element = createDiv({ cls: "elbowroom-waiting" });
		setIcon(element.createSpan(), "clock");
		element.createSpan({ text: textOf(row.message) });
		iconButton(element, "x", "Take it back", () => this.view.chat.unsay(row.id));
		return element;
	}
}

// view/conversation_list.js

// The list of conversations that elbowroom keeps, whichever program they were begun in.

const ROWS = 30;
const LIST_END = 200;

class ConversationList extends Modal {
	#asking = null;
	#next = null;
	#search = "";

	constructor(plugin, choose) {
		super(plugin.app);
		this.plugin = plugin;
		this.choose = choose;
	}

	onOpen() {
		this.setTitle("Conversations");
		const input = this.contentEl.createEl("input", { type: "search", attr: { "aria-label": "Search in all that was said", placeholder: "Search in all that was said" } });
		this.list = this.contentEl.createEl("ul", { cls: "elbowroom-conversations" });
		this.foot = this.contentEl.createDiv({ cls: "elbowroom-quiet", attr: { role: "status" } });
		const search = debounce(() => void this.begin(input.value.trim()), 250, true);
		input.addEventListener("input", search);
		this.list.addEventListener("scroll", () => this.fill());
		this.contentEl.addEventListener("keydown", (event) => this.pressed(event));
		input.focus();
		void this.begin("");
	}

	/**
	 * Moves with the arrow keys between the search and the conversations.
	 * @param {KeyboardEvent} event
	 */
	pressed(event) {
		const step = event.isComposing ? 0 : event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
		if (!step) return;
		const stops = [...this.contentEl.findAll("input, .elbowroom-open")];
		const row = event.targetNode?.parentElement?.querySelector(".elbowroom-open");
		const now = stops.findIndex((stop) => stop === event.target || stop === row);
		event.preventDefault();
		stops[Math.max(0, now + step)]?.focus();
	}

	async begin(search) {
		this.#asking?.abort();
		this.#asking = null;
		this.#next = null;
		this.#search = search;
		await this.more(true);
	}

	/** Asks for more where the end of the list is near, also where it is shorter than its room. */
	fill() {
		const { list } = this;
		if (list?.isShown() && this.#next && list.scrollHeight - list.scrollTop - list.clientHeight < LIST_END) void this.more();
	}

	async more(isFirst = false) {
		if (this.#asking || !this.list || !this.foot) return;
		const { signal } = this.#asking = new AbortController();
		try {
			const page = await this.plugin.server.conversations({ q: this.#search, before: this.#next, limit: ROWS, signal });
			if (isFirst) this.list.empty();
			for (const row of page.data) this.list.append(this.row(row));
			this.#next = page.has_more ? page.next : null;
			this.foot.setText(this.list.childElementCount ? "" : this.#search ? "Nothing was found." : "Nothing was said yet.");
		} catch (error) {
			if (isAbort(error) || (error instanceof ServerError && error.code === "search_replaced")) return;
			this.foot.setText(errorWords(error));
			return;
		} finally {
			if (this.#asking?.signal === signal) this.#asking = null;
		}
		this.fill();
	}

	row(row) {
		const element = createEl("li", { cls: "elbowroom-conversation" });
		const button = element.createEl("button", { cls: "elbowroom-open", attr: { type: "button" } });
		const title = button.createDiv({ cls: "elbowroom-title", text: titleOf(row) });
		const when = moment.unix(row.updated).fromNow();
		button.createDiv({ cls: "elbowroom-quiet", text: [row.agent, row.status === "running" ? "being answered" : when].filter(Boolean).join(" · ") });
		button.addEventListener("click", () => {
			this.close();
			this.choose(row.id);
		});
		iconButton(element, "pencil", `Rename ${titleOf(row)}`, () => new RenameModal(this.plugin, row, (now) => { row.title = now; title.setText(titleOf(row)); }).open());
		iconButton(element, "trash-2", `Delete ${titleOf(row)}`, async () => { if (await removeConversation(this.plugin, row)) element.remove(); });
		return element;
	}

	onClose() {
		this.#asking?.abort();
		this.contentEl.empty();
	}
}

function titleOf({ title }) {
	return title.trim() || "Without a title";
}

class RenameModal extends Modal {
	constructor(plugin, row, done) {
		super(plugin.app);
		this.plugin = plugin;
		this.row = row;
		this.done = done;
		this.name = row.title;
	}

	onOpen() {
		this.setTitle("Rename the conversation");
		new Setting(this.contentEl).setName("Title").setDesc("Leave it empty to have it named by its first words.").addText((text) => {
			text.setValue(this.name).onChange((value) => { this.name = value.trim(); });
			text.inputEl.setAttr("aria-label", "Title");
			text.inputEl.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) void this.save(); });
			text.inputEl.select();
		});
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Rename").setCta().onClick(() => this.save()));
	}

	async save() {
		try {
			await this.plugin.server.rename(this.row.id, this.name);
			const { title } = await this.plugin.server.conversation(this.row.id);
			this.close();
			this.done(title);
		} catch (error) {
			new Notice(errorWords(error));
		}
	}

	onClose() {
		this.contentEl.empty();
	}
}

/**
 * Asks, and deletes a conversation. Returns whether it is gone.
 * @param {import("../main.js").default} plugin
 * @param {Named} row
 */
async function removeConversation(plugin, row) {
	const isSure = await new Promise((resolve) => new ConfirmModal(plugin.app, row, resolve).open());
	if (!isSure) return false;
	try {
		await plugin.server.remove(row.id);
		return true;
	} catch (error) {
		if (error instanceof ServerError && error.status === 404) return true;
		new Notice(errorWords(error));
		return false;
	}
}

class ConfirmModal extends Modal {
	constructor(app, row, answer) {
		super(app);
		this.row = row;
		this.answer = answer;
		this.isSure = false;
	}

	onOpen() {
		this.setTitle("Delete this conversation?");
		this.contentEl.createEl("p", { text: `“${titleOf(this.row)}” is deleted from elbowroom, for all programs.` });
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Delete").setWarning().onClick(() => {
				this.isSure = true;
				this.close();
			}));
	}

	onClose() {
		this.contentEl.empty();
		this.answer(this.isSure);
	}
}

// settings/pairing.js

// Trades the code that elbowroom shows for a token of this device.

/** Asks for the code; `done` is called once the token is kept. */
class PairingModal extends Modal {
	constructor(plugin, done = () => {}) {
		super(plugin.app);
		this.plugin = plugin;
		this.done = done;
		this.code = "";
		this.isAsking = false;
	}

	onOpen() {
		this.setTitle("Pair with elbowroom");
		new Setting(this.contentEl)
			.setName("Code")
			.setDesc(`Open ${this.plugin.server.where.address()} on the computer where elbowroom runs and choose Connect, or type "elbowroom obsidian pair" in a terminal there.`)
			.addText((text) => {
				text.onChange((value) => { this.code = value.trim(); });
				text.inputEl.setAttrs({ "aria-label": "Code", placeholder: "ABCD-2345", autocomplete: "off", autocapitalize: "characters", spellcheck: "false" });
				text.inputEl.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) void this.pair(); });
				text.inputEl.focus();
			});
		this.problem = this.contentEl.createDiv({ cls: "elbowroom-problem", attr: { role: "alert" } });
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Pair").setCta().onClick(() => this.pair()));
	}

	async pair() {
		if (!this.code || this.isAsking) return;
		this.isAsking = true;
		try {
			const { token } = await this.plugin.server.pair(this.code, deviceName(this.app));
			keepToken(this.app, this.plugin.preferences, token);
			await this.plugin.savePreferences();
			this.close();
			this.done();
		} catch (error) {
			this.problem?.setText(errorWords(error));
		} finally {
			this.isAsking = false;
		}
	}

	onClose() {
		this.contentEl.empty();
	}
}

/**
 * Returns what this device is called in elbowroom's list.
 * @param {import("obsidian").App} app
 */
function deviceName(app) {
	const kind = Platform.isIosApp ? "iOS" : Platform.isAndroidApp ? "Android" : Platform.isMacOS ? "macOS" : Platform.isWin ? "Windows" : "Linux";
	return `${app.vault.getName()} (Obsidian on ${kind})`;
}

// view/chat_view.js

// The view of a conversation: its head with agent and gauge, the messages, and the composer.

const VIEW_TYPE = "elbowroom-chat";
const NAME = "Elbowroom";
const NEAR_END = 80;

class ChatView extends ItemView {
	icon = "message-square-text";
	navigation = false;
	models = [];
	composer = null;
	/** @type {HTMLElement | null} The messages, while the view is open. */
	log = null;
	#messages = new Map();
	/** @type {Map<string, HTMLDetailsElement>} The lines of compactions, by all that they show. */
	#lines = new Map();
	#isDrawing = false;
	#drawLater = null;

	constructor(leaf, plugin) {
		super(leaf);
		this.plugin = plugin;
		this.chat = new Chat(plugin.server);
		this.notices = new CompactionNotices(plugin);
	}

	getViewType() {
		return VIEW_TYPE;
	}

	getDisplayText() {
		return this.chat.title ? `${NAME}: ${this.chat.title}` : NAME;
	}

	/** The window of the chosen model in tokens; 0 where nobody knows. */
	get window() {
		return this.chat.context?.window ?? this.models.find(({ id }) => id === this.chat.model)?.context_length ?? 0;
	}

	async onOpen() {
		const { contentEl } = this;
		contentEl.empty();
		contentEl.addClass("elbowroom-view");
		this.addHead(contentEl.createDiv({ cls: "elbowroom-head" }));
		this.problem = contentEl.createDiv({ cls: "elbowroom-trouble", attr: { role: "alert" } });
		this.log = contentEl.createDiv({ cls: "elbowroom-log", attr: { role: "log", "aria-label": "Conversation", tabindex: "0" } });
		this.notice = contentEl.createDiv({ cls: "elbowroom-notice", attr: { role: "status" } });
		followLinks(this.app, this.log);
		this.composer = new Composer(this, contentEl);
		this.listen();
		this.chat.begin(this.plugin.preferences.agent);
		void this.readModels(); // Obsidian waits for its views, and elbowroom may be away
		return Promise.resolve();
	}

	addHead(head) {
		const row = head.createDiv({ cls: "elbowroom-bar" });
		this.picker = row.createEl("select", { cls: "dropdown", attr: { "aria-label": "Agent or model" } });
		this.picker.addEventListener("change", () => {
			this.chat.model = this.picker?.value ?? "";
			this.composer?.recount();
			this.tellStatus();
		});
		iconButton(row, "messages-square", "Conversations", () => new ConversationList(this.plugin, (id) => void this.show(id)).open());
		iconButton(row, "square-pen", "New conversation", () => this.begin());
		iconButton(row, "ellipsis-vertical", "More", () => this.showMenu(row));
		this.gauge = new Gauge(head);
		this.fill = head.createDiv({ cls: "elbowroom-quiet" });
	}

	listen() {
		this.registerEvent(this.chat.on("changed", (...what) => this.draw(String(what[0]))));
		this.registerEvent(this.chat.on("notice", (...event) => this.notices.hear(/** @type {import("../server/stream.js").StreamEvent} */ (event[0]))));
		this.registerEvent(this.chat.on("back", () => void this.readModels()));
		this.registerEvent(this.chat.on("context", () => this.showState()));
		this.registerEvent(this.plugin.events.on("settings", () => void this.readModels()));
		this.registerEvent(this.plugin.events.on("unload", () => void this.onClose()));
		this.registerDomEvent(this.contentEl.win, "focus", () => void this.chat.lookAgain());
		this.registerEvent(this.app.workspace.on("active-leaf-change", (leaf) => {
			if (leaf !== this.leaf) return;
			this.tellStatus();
			void this.chat.lookAgain();
		}));
	}

	/** Reads which agents and models there are; the first of them answers where none was chosen. */
	async readModels() {
		try {
			this.models = await this.plugin.server.models();
		} catch (error) {
			this.chat.missed(error);
		}
		if (!this.chat.model) {
			this.chat.model = this.plugin.preferences.agent || this.models[0]?.id || "";
			this.composer?.recount();
		}
		this.showPicker();
		this.draw("state");
	}

	showPicker() {
		const { picker, chat, models } = this;
		if (!picker) return;
		const rows = models.some(({ id }) => id === chat.model) || !chat.model ? models : [{ id: chat.model }, ...models];
		picker.replaceChildren(...rows.map(({ id, name }) => createEl("option", { value: id, text: name && name !== id ? `${name} (${id})` : id })));
		picker.value = chat.model;
	}

	begin() {
		this.chat.begin(this.plugin.preferences.agent || this.chat.model || this.models[0]?.id || "");
		this.letBe();
		this.composer?.input.focus();
		this.keepState();
	}

	async show(id) {
		this.letBe();
		await this.chat.open(id);
		this.keepState();
	}

	/** Edits no message any more; what else was written stays. */
	letBe() {
		if (this.composer?.editing) this.composer.clear();
	}

	getState() {
		return this.chat.isKept ? { conversation: this.chat.id } : {};
	}

	async setState(state, result) {
		const { conversation } = /** @type {{ conversation?: unknown }} */ (state ?? {});
		if (typeof conversation === "string" && conversation !== this.chat.id) void this.chat.open(conversation);
		await super.setState(state, result);
	}

	keepState() {
		void this.app.workspace.requestSaveLayout();
	}

	/**
	 * Takes what a question is about from elsewhere in Obsidian.
	 * @param {import("../notes/attachments.js").Attachment[]} attachments
	 */
	ask(attachments) {
		this.composer?.take(attachments);
		this.composer?.input.focus();
	}

	showMenu(row) {
		const { chat } = this;
		const menu = new Menu();
		menu.addItem((item) => item.setTitle("Rename").setIcon("pencil").setDisabled(!chat.isKept).onClick(() => {
			new RenameModal(this.plugin, chat, (title) => { chat.title = title; this.draw("state"); }).open();
		}));
		menu.addItem((item) => item.setTitle("Compact now").setIcon("fold-vertical").setDisabled(!chat.isKept || chat.isRunning).onClick(() => void chat.compact("")));
		menu.addItem((item) => item.setTitle("Delete").setIcon("trash-2").setWarning(true).setDisabled(!chat.isKept).onClick(async () => {
			if (await removeConversation(this.plugin, chat)) this.begin();
		}));
		const { left, bottom } = row.getBoundingClientRect();
		menu.showAtPosition({ x: left, y: bottom }, row.doc);
	}

	/**
	 * Draws what has changed; a message that is being written a few times a second at most.
	 * @param {string} what
	 */
	draw(what) {
		if (what !== "last") {
			this.showState();
			if (what === "items") this.keepState();
		}
		if (what === "state") return;
		if (what === "items") void this.drawMessages();
		else this.drawSoon();
	}

	drawSoon() {
		if (this.log) this.#drawLater ??= window.setTimeout(() => {
			this.#drawLater = null;
			void this.drawMessages();
		}, DRAW_MS);
	}

	async drawMessages() {
		const { log } = this;
		if (!log) return;
		if (this.#isDrawing) {
			this.drawSoon();
			return;
		}
		this.#isDrawing = true;
		try {
			await this.drawAll(log);
		} finally {
			this.#isDrawing = false;
		}
	}

	async drawAll(log) {
		const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
		const views = this.chat.items.filter(({ role }) => role !== "system").map((item) => this.messageFor(item));
		for (const [item, view] of this.#messages) if (!this.chat.items.includes(item)) {
			this.#messages.delete(item);
			this.removeChild(view);
			view.element.remove();
		}
		await Promise.all(views.map((view) => view.draw()));
		this.place(log, views);
		if (isAtEnd) log.scrollTop = log.scrollHeight;
	}

	messageFor(item) {
		const found = this.#messages.get(item) ?? this.addChild(new MessageView(this, item));
		this.#messages.set(item, found);
		return found;
	}

	/**
	 * Puts messages and the lines of compactions in their order; what is in its place stays there.
	 * @param {HTMLElement} log
	 * @param {MessageView[]} views
	 */
	place(log, views) {
		const { compactions } = this.chat;
		const open = new Set([...log.querySelectorAll("details.elbowroom-compaction[open]")].map((line) => line.getAttribute("data-at")));
		const newest = compactions.findLast(({ undone }) => !undone);
		const known = this.#lines;
		this.#lines = new Map();
		const lines = compactions.map((compaction) => {
			const shown = JSON.stringify([compaction, compaction === newest]);
			const line = known.get(shown) ?? compactionLine(this, compaction, compaction === newest);
			this.#lines.set(shown, line);
			return { at: compaction.at, line };
		});
		for (const { at, line } of lines) line.open = open.has(String(at));
		const wanted = [];
		for (const view of views) {
			while (lines[0] && lines[0].at < view.item.at) wanted.push(/** @type {{ line: HTMLElement }} */ (lines.shift()).line);
			wanted.push(view.element);
		}
		wanted.push(...lines.map(({ line }) => line));
		for (const old of [...log.children]) if (!wanted.includes(/** @type {HTMLElement} */ (old))) old.remove();
		wanted.forEach((element, index) => { if (log.children[index] !== element) log.insertBefore(element, log.children[index] ?? null); });
	}

	showState() {
		const { chat } = this;
		this.gauge?.show(chat.context);
		this.fill?.setText(fillOf(chat.context).words);
		this.composer?.show();
		if (!chat.isRunning) this.notices.end();
		const words = chat.notice || (chat.isRunning && !chat.items.at(-1)?.text ? "Waiting for the first word…" : chat.runsElsewhere ? "Another program's answer is being written." : "");
		if (this.notice && this.notice.textContent !== words) this.notice.setText(words);
		this.showProblem();
		if (this.picker && this.picker.value !== chat.model) this.showPicker();
		this.tellStatus();
	}

	showProblem() {
		const { problem } = this;
		const found = this.chat.problem;
		if (!problem || problem.dataset.told === (found?.message ?? "")) return;
		problem.empty();
		problem.dataset.told = found?.message ?? "";
		if (!found) return;
		setIcon(problem.createSpan(), "circle-alert");
		problem.createSpan({ text: this.chat.isAway ? `${found.message} What you write stays here; it goes on as soon as elbowroom is back.` : found.message });
		if (found.needsPairing) problem.createEl("button", { text: "Pair" }).addEventListener("click", () => new PairingModal(this.plugin, () => void this.again()).open());
		else if (!this.chat.isAway) problem.createEl("button", { text: "Try again" }).addEventListener("click", () => this.tryAgain());
	}

	/** Has the question answered that has no whole answer; where there is none, what failed was to read or change something. */
	tryAgain() {
		const last = this.chat.items.at(-1);
		void (last?.role === "user" || last?.status === "interrupted" ? this.chat.retry() : this.again());
	}

	/** Reads everything again, for a new token or address. */
	async again() {
		this.chat.problem = null;
		await this.readModels();
		if (this.chat.isKept) await this.chat.load();
	}

	tellStatus() {
		this.plugin.events.trigger("context", { conversation: this.chat.id, context: this.chat.context, model: this.chat.model });
	}

	async onClose() {
		this.chat.close();
		if (this.#drawLater !== null) window.clearTimeout(this.#drawLater);
		this.log = null;
		this.notices.end();
		this.composer?.counting.stop();
		this.plugin.events.trigger("context", { conversation: "", context: null, model: "" });
		return Promise.resolve();
	}
}

// notes/preview_modal.js

// What a model makes of a text, shown while it streams; nothing changes in the note before it is accepted.

class PreviewModal extends Modal {
	#text = "";
	#how = "";
	#drawn = new Component();
	#stopping = null;
	#drawLater = null;
	#unloading = null;

	constructor(plugin, task, place) {
		super(plugin.app);
		this.plugin = plugin;
		this.task = task;
		this.place = place;
	}

	onOpen() {
		this.setTitle(this.task.name);
		this.modalEl.addClass("elbowroom-preview");
		this.#unloading = this.plugin.events.on("unload", () => this.close());
		if (this.task.asksHow) {
			new Setting(this.contentEl).setName("How").setDesc("What you want, such as a shorter text or another language. It may stay empty.").addText((text) => {
				text.onChange((value) => { this.#how = value.trim(); });
				text.inputEl.setAttr("aria-label", "How");
				text.inputEl.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) void this.run(); });
			});
		}
		this.state = this.contentEl.createDiv({ cls: "elbowroom-quiet", attr: { role: "status" } });
		this.shown = this.contentEl.createDiv({ cls: "elbowroom-result markdown-rendered", attr: { tabindex: "0", role: "region", "aria-label": "Preview" } });
		followLinks(this.app, this.shown);
		new Setting(this.contentEl)
			.addButton((button) => { this.again = button.setButtonText("Try again").onClick(() => this.run()); })
			.addButton((button) => { this.stopper = button.setButtonText("Stop").onClick(() => this.stop()); })
			.addButton((button) => { this.copier = button.setButtonText("Copy").onClick(() => this.copy()); })
			.addButton((button) => { this.inserter = button.setButtonText("Insert anyway").onClick(() => this.insert()); })
			.addButton((button) => { this.accepter = button.setButtonText("Accept").setCta().onClick(() => this.accept()); });
		this.inserter?.buttonEl.hide();
		void this.run();
	}

	async run() {
		this.#stopping?.abort();
		const { signal } = this.#stopping = new AbortController();
		this.#text = "";
		let end = "";
		this.say("Waiting for the first word…", true);
		this.draw();
		try {
			// A chat whose name begins with "local:" is kept nowhere.
			for await (const event of streamChat(this.plugin.server, { model: await this.model(), messages: this.messages() }, { conversation: `local:${crypto.randomUUID()}`, signal })) {
				signal.throwIfAborted();
				if (event.type === "text") {
					if (!this.#text) this.say("Writing…", true);
					this.#text += event.text;
					this.drawSoon();
				} else if (event.type === "notice" || event.type === "whole") this.say(event.text, true);
				else if (event.type === "end" && event.reason === "length") end = "The answer reached the most tokens that it may have, so its end is missing.";
			}
			this.say(this.#text.trim() ? end : "The model answered nothing. Try again.", false);
		} catch (error) {
			if (signal !== this.#stopping?.signal) return;
			this.say(isAbort(error) ? "Stopped." : errorWords(error), false);
		}
		this.draw();
	}

	/** Ends the answer, and shows at once what came of it. */
	stop() {
		this.#stopping?.abort();
		this.say("Stopped.", false);
		this.draw();
	}

	async model() {
		return this.plugin.preferences.agent || (await this.plugin.server.models())[0]?.id || "";
	}

	messages() {
		const how = this.#how ? `\n\nThe person wants: ${this.#how}` : "";
		return [{ role: "user", content: `${this.task.order}${how}\n\n<selected_text path="">\n${this.place.text}\n</selected_text>` }];
	}

	say(words, isRunning) {
		this.state?.setText(words);
		this.stopper?.setDisabled(!isRunning);
		this.again?.setDisabled(isRunning);
		this.copier?.setDisabled(isRunning || !this.#text);
		this.accepter?.setDisabled(isRunning || !this.#text.trim());
	}

	drawSoon() {
		if (!this.#text) return;
		this.#drawLater ??= window.setTimeout(() => {
			this.#drawLater = null;
			this.draw();
		}, DRAW_MS);
	}

	draw() {
		const { shown } = this;
		if (!shown) return;
		this.#drawn.unload();
		const drawn = this.#drawn = new Component();
		drawn.load();
		const next = createDiv();
		void MarkdownRenderer.render(this.app, safeMarkdown(this.#text), next, "", drawn).catch(() => next.setText(this.#text)).then(() => {
			if (drawn === this.#drawn) shown.replaceChildren(...next.childNodes);
		});
	}

	accept() {
		const text = this.place.isBefore ? this.#text : withEdgesOf(this.place.text, this.#text);
		if (putInPlace(this.place, text)) {
			this.close();
			return;
		}
		const isHere = isOpen(this.place);
		this.inserter?.buttonEl.toggle(isHere);
		this.say(`The note has changed there meanwhile, so nothing was put in. Copy the text${isHere ? ", or insert it where the cursor stands" : ""}.`, false);
	}

	insert() {
		const { editor } = this.place;
		const at = editor.getCursor("to");
		editor.transaction({ changes: [{ from: at, text: this.#text.trim() }] });
		this.close();
	}

	async copy() {
		await navigator.clipboard.writeText(this.#text);
		new Notice("Copied.");
	}

	onClose() {
		this.#stopping?.abort();
		this.#stopping = null;
		if (this.#unloading) this.plugin.events.offref(this.#unloading);
		this.#drawn.unload();
		if (this.#drawLater !== null) window.clearTimeout(this.#drawLater);
		this.contentEl.empty();
	}
}

// notes/editor_commands.js

// Commands for the note at work: rewrite, summarise, continue and ask.

const MOST_BEFORE = 6000;
const ONLY = "Answer with the text alone, in its language and its Markdown, without any word before or after it.";

const TASKS = [
	{ id: "rewrite-selection", name: "Rewrite selection", icon: "pencil-line", order: `Rewrite the text so that it reads better, and keep what it says. ${ONLY}`, asksHow: true },
	{ id: "summarise-selection", name: "Summarise selection", icon: "list-collapse", order: `Summarise the text. ${ONLY}`, asksHow: false },
];
const CONTINUE = { id: "continue-writing", name: "Continue writing", icon: "text-cursor", order: `Continue the text from where it ends, and repeat nothing of it. ${ONLY}`, asksHow: false };

function addEditorCommands(plugin) {
	const previewOf = (task) => (editor, info) => new PreviewModal(plugin, task, placeOf(task, editor, info)).open();
	const commands = [
		...TASKS.map((task) => ({ ...task, run: previewOf(task) })),
		{ id: "ask-about-selection", name: "Ask about selection", icon: "message-circle-question", run: (editor, info) => void ask(plugin, editor, info) },
		{ ...CONTINUE, run: previewOf(CONTINUE) },
	];
	for (const { id, name, icon, run } of commands) {
		plugin.addCommand({
			id, name, icon,
			editorCheckCallback: (checking, editor, info) => {
				if (!fits(id, editor)) return false;
				if (!checking) run(editor, info);
				return true;
			},
		});
	}
	plugin.registerEvent(plugin.app.workspace.on("editor-menu", (menu, editor, info) => {
		for (const { id, name, icon, run } of commands) {
			if (fits(id, editor)) menu.addItem((item) => item.setTitle(name).setIcon(icon).onClick(() => run(editor, info)));
		}
	}));
}

/**
 * Takes a selection to the chat, where the person writes the question.
 * @param {import("../main.js").default} plugin
 * @param {import("obsidian").Editor} editor
 * @param {import("obsidian").MarkdownFileInfo} info
 */
async function ask(plugin, editor, info) {
	const attachment = { kind: "selected_text", path: info.file?.path ?? "", text: editor.getSelection(), tokens: null };
	const view = await plugin.activateView();
	view?.ask([attachment]);
}

/**
 * Tells whether a command has a text to work with: what is selected, or what stands before the cursor.
 * @param {string} id
 * @param {import("obsidian").Editor} editor
 */
function fits(id, editor) {
	return editor.getSelection().trim() !== "" || (id === CONTINUE.id && textBefore(editor, editor.getCursor("to")).trim() !== "");
}

function placeOf(task, editor, info) {
	const note = { editor, info, file: info.file };
	const to = editor.getCursor("to");
	if (task === CONTINUE) return { ...note, from: to, to, text: textBefore(editor, to), isBefore: true };
	return { ...note, from: editor.getCursor("from"), to, text: editor.getSelection(), isBefore: false };
}

function textBefore(editor, at) {
	return editor.getRange({ line: 0, ch: 0 }, at).slice(-MOST_BEFORE).replace(/^[\uDC00-\uDFFF]/, "");
}

/**
 * Puts a text in its place as one step that one undo takes back. Returns false, and changes nothing, where what the
 * model was given is not found there any more, nor at one other place of the note.
 * @param {Place} place
 * @param {string} text
 */
function putInPlace(place, text) {
	const found = isOpen(place) ? (stands(place) ? place : movedTo(place)) : null;
	if (!found) return false;
	place.editor.transaction({ changes: [{ from: found.from, to: found.to, text }] });
	return true;
}

/**
 * Returns a text with the spaces and ends of lines around it that another one has.
 * @param {string} other
 * @param {string} text
 */
function withEdgesOf(other, text) {
	return other.slice(0, other.length - other.trimStart().length) + text.trim() + other.slice(other.trimEnd().length);
}

/**
 * Tells whether the editor still shows the note of a place.
 * @param {Place} place
 */
function isOpen({ info, file }) {
	return info.file === file;
}

function stands({ editor, from, to, text, isBefore }) {
	return (isBefore ? textBefore(editor, from) : editor.getRange(from, to)) === text;
}

/**
 * Returns where the text of a place stands now; null where it stands nowhere, or more than once.
 * @param {Place} place
 */
function movedTo({ editor, text, isBefore }) {
	const whole = editor.getValue();
	const start = whole.indexOf(text);
	if (start < 0 || whole.indexOf(text, start + 1) >= 0) return null;
	const to = editor.offsetToPos(start + text.length);
	return { from: isBefore ? to : editor.offsetToPos(start), to };
}

// settings/settings_tab.js

// The settings: this vault's own, and those of elbowroom, which are changed there and shown as they are there.

const SAME = "same";
const COMPACTION = "compaction.";
const FRESH_SECONDS = 3;
const STATES = { ok: "Works", warning: "Look at this", problem: "Does not work" };

class ElbowroomSettingTab extends PluginSettingTab {
	icon = "panel-left-right-dashed";
	models = [];
	agents = [];
	settings = null;
	problem = "";
	checks = [];
	#results = null;
	#askedAt = 0;
	/** @type {(() => void)[]} What takes the rows' listeners away again, before Obsidian 1.13. */
	#cleanups = [];

	constructor(plugin) {
		super(plugin.app, plugin);
		this.plugin = plugin;
	}

	groups() {
		return [
			{ heading: "Connection", rows: this.connection() },
			{ heading: "Chat", rows: this.chat() },
			{ heading: "When a conversation grows too long", rows: this.compaction() },
		];
	}

	getSettingDefinitions() {
		return this.groups().map(({ heading, rows }) => /** @type {import("obsidian").SettingDefinitionItem} */ ({ type: "group", heading, items: rows }));
	}

	/** Shows the same settings in an Obsidian from before 1.13. */
	display() {
		this.tidy();
		this.containerEl.empty();
		for (const { heading, rows } of this.groups()) {
			new Setting(this.containerEl).setName(heading).setHeading();
			for (const row of rows) {
				if (row.visible && !row.visible()) continue;
				const setting = new Setting(this.containerEl).setName(row.name).setDesc(row.desc);
				if (row.control) this.addControl(setting, row.control);
				else this.#cleanups.push(row.render?.(setting) ?? (() => {}));
			}
		}
	}

	hide() {
		this.tidy();
		this.checks = [];
		super.hide();
	}

	tidy() {
		for (const cleanup of this.#cleanups.splice(0)) cleanup();
	}

	connection() {
		return [
			{
				name: "Address", desc: "Where elbowroom runs. On a phone, the address of that computer in your network.",
				render: (setting) => this.showAddress(setting),
			},
			{ name: "Pairing", desc: "Gives this vault a token of its own, which you can take back on elbowroom's page.", render: (setting) => this.showPairing(setting) },
			{
				name: "Token", desc: "Kept in Obsidian's secret storage. Pairing fills it in; a token of your own works too.",
				render: (setting) => this.showToken(setting),
			},
			{
				name: "User", desc: "Whose conversations are listed and continued, where Open WebUI keeps several people apart. Else leave it empty.",
				control: { type: "text", key: "user" },
			},
			{ name: "Test", desc: "Looks whether everything is as it should be.", render: (setting) => this.showTest(setting) },
		];
	}

	chat() {
		const rows = this.models.map(({ id, name }) => [id, name && name !== id ? `${name} (${id})` : id]);
		const kept = this.plugin.preferences.agent;
		const known = !kept || rows.some(([id]) => id === kept) ? [] : [[kept, kept]];
		return [
			{
				name: "Default agent", desc: "Answers new conversations.",
				control: { type: "dropdown", key: "agent", options: Object.fromEntries([["", "The first there is"], ...known, ...rows]) },
			},
			{
				name: "Context from the note", desc: "What of the note you work on goes along with a question. Its size is shown before it is sent.",
				control: { type: "dropdown", key: "noteContext", options: { none: "Nothing", selection: "The selection", note: "The whole note" } },
			},
			{
				name: "Tell of compactions in notices", desc: "Besides the line in the chat.",
				control: { type: "toggle", key: "noticesAsPopups" },
			},
		];
	}

	compaction() {
		const agents = Object.fromEntries([[SAME, "Same as current agent"], ...this.agents.map(({ id, name }) => [id, name || id])]);
		const chosen = String(this.getControlValue(`${COMPACTION}pruning_agent`));
		if (!(chosen in agents)) agents[chosen] = chosen;
		return [
			{ name: "Settings of elbowroom", desc: this.whereKept(), render: (setting) => this.showState(setting) },
			{
				name: "Pruning agent", desc: this.about("pruning_agent", "Writes the summary that takes the place of what no longer fits."),
				control: { type: "dropdown", key: `${COMPACTION}pruning_agent`, options: agents, disabled: () => this.isFixed("pruning_agent") },
			},
			{
				name: "Compact from", desc: this.about("threshold_ratio", "How full the window may be before the older part is summarised, in percent."),
				control: {
					type: "slider", key: `${COMPACTION}threshold_ratio`, min: 60, max: 88, step: 1,
					displayFormat: (value) => percent(value / 100), disabled: () => this.isFixed("threshold_ratio"),
				},
			},
			{
				name: "Notices", desc: this.about("notices", "How chat programs are told of what happens. This one shows them unless they are off."),
				control: {
					type: "dropdown", key: `${COMPACTION}notices`, disabled: () => this.isFixed("notices"),
					options: { auto: "As fits the program", event: "As status lines", content: "As lines of the text", comment: "As hidden comments", off: "Off" },
				},
			},
		];
	}

	whereKept() {
		if (this.problem) return this.problem;
		return this.isPaired ? "They are kept by elbowroom, and hold for all programs that use it." : "Pair this vault with elbowroom to see and change them here.";
	}

	get isPaired() {
		return tokenOf(this.app, this.plugin.preferences) !== "";
	}

	about(key, words) {
		const by = this.settings?.locked[COMPACTION + key];
		return by ? `${words} It is set by ${by} and cannot be changed here.` : words;
	}

	isFixed(key) {
		return !this.settings || COMPACTION + key in this.settings.locked;
	}

	getControlValue(key) {
		const { preferences } = this.plugin;
		if (!key.startsWith(COMPACTION)) return preferences[/** @type {"address"} */ (key)];
		const name = key.slice(COMPACTION.length);
		const value = this.settings?.values.compaction[name] ?? preferences.seen[name] ?? { pruning_agent: SAME, threshold_ratio: 0.8, notices: "auto" }[name];
		return name === "threshold_ratio" ? Math.round(Number(value) * 100) : value;
	}

	async setControlValue(key, value) {
		if (key.startsWith(COMPACTION)) {
			const name = key.slice(COMPACTION.length);
			await this.change({ [name]: name === "threshold_ratio" ? Number(value) / 100 : value });
		} else {
			Object.assign(this.plugin.preferences, { [key]: value });
			await this.plugin.savePreferences();
		}
	}

	/**
	 * Changes settings of elbowroom; what is refused is shown as it is.
	 * @param {Record<string, unknown>} compaction
	 */
	async change(compaction) {
		try {
			this.take(await this.plugin.server.changeSettings({ compaction }));
		} catch (error) {
			new Notice(errorWords(error));
		}
		this.redraw();
	}

	take(answer) {
		this.settings = answer;
		const { pruning_agent: agent, threshold_ratio: ratio, notices } = answer.values.compaction;
		const { preferences } = this.plugin;
		const seen = { pruning_agent: String(agent), threshold_ratio: String(ratio), notices: String(notices) };
		if (JSON.stringify(seen) === JSON.stringify(preferences.seen)) return;
		preferences.seen = seen;
		void this.plugin.saveData(preferences);
	}

	/**
	 * Reads what elbowroom has, unless it was read a moment ago.
	 * @param {boolean} [now]
	 */
	async refresh(now = false) {
		if (!now && Date.now() - this.#askedAt < FRESH_SECONDS * 1000) return;
		this.#askedAt = Date.now();
		const { server } = this.plugin;
		try {
			this.models = await server.models();
			this.problem = "";
			if (this.isPaired) {
				const [settings, agents] = await Promise.all([server.settings(), server.agents()]);
				this.agents = agents.filter(({ enabled }) => enabled !== false);
				this.take(settings);
			} else this.settings = null;
		} catch (error) {
			this.settings = null;
			this.problem = errorWords(error);
		}
		this.redraw();
	}

	/** Shows what is known now. */
	redraw() {
		if (!this.containerEl.isConnected) return;
		if ("settingItems" in this) this.update();
		else /** @type {ElbowroomSettingTab} */ (this).display();
	}

	showState(setting) {
		const again = () => void this.refresh();
		const { win } = setting.settingEl;
		win.addEventListener("focus", again);
		void this.refresh();
		setting.addButton((button) => button.setIcon("refresh-cw").setTooltip("Read them again").onClick(() => void this.refresh(true)));
		return () => win.removeEventListener("focus", again);
	}

	/**
	 * The address, taken once it is typed to its end: no half of one is ever asked.
	 * @param {Setting} setting
	 */
	showAddress(setting) {
		const problem = setting.infoEl.createDiv({ cls: "elbowroom-problem", attr: { role: "alert" } });
		setting.addText((text) => {
			text.setValue(this.plugin.preferences.address).setPlaceholder(DEFAULTS.address);
			text.inputEl.setAttrs({ inputmode: "url", "aria-label": "Address", autocomplete: "off", spellcheck: "false" });
			text.inputEl.addEventListener("change", async () => {
				const typed = text.inputEl.value;
				problem.setText(baseAddress(typed) ? "" : "This is no address. It looks like http://127.0.0.1:2345.");
				if (!baseAddress(typed)) return;
				await this.setControlValue("address", typed.trim());
				void this.refresh(true);
			});
		});
	}

	showPairing(setting) {
		setting.addButton((button) => button.setButtonText(this.isPaired ? "Pair again" : "Pair").onClick(() => {
			new PairingModal(this.plugin, () => void this.refresh(true)).open();
		}));
	}

	showToken(setting) {
		const { preferences } = this.plugin;
		if (this.app.secretStorage) {
			setting.addComponent((element) => new SecretComponent(this.app, element).setValue(preferences.secret).onChange(async (name) => {
				preferences.secret = name;
				await this.plugin.savePreferences();
				void this.refresh(true);
			}));
		} else {
			setting.addText((text) => {
				text.inputEl.setAttrs({ type: "password", "aria-label": "Token", autocomplete: "off" });
				text.setValue(preferences.token).inputEl.addEventListener("change", async () => {
					preferences.token = text.inputEl.value.trim();
					await this.plugin.savePreferences();
					void this.refresh(true);
				});
			});
		}
	}

	showTest(setting) {
		this.#results = setting.infoEl.createDiv({ attr: { role: "status" } }).createEl("ul", { cls: "elbowroom-checks" });
		this.showChecks();
		setting.addButton((button) => button.setButtonText("Test").onClick(async () => {
			button.setDisabled(true);
			this.#results?.replaceChildren(createEl("li", { text: "Looking…" }));
			this.checks = await this.examined();
			this.showChecks();
			button.setDisabled(false);
		}));
	}

	/** Shows what the last test found, also once the rows were drawn anew. */
	showChecks() {
		this.#results?.replaceChildren(...this.checks.map(checkRow));
	}

	/** @returns {Promise<import("../server/server.js").DoctorRow[]>} The doctor's sentences, or what can be seen from here. */
	async examined() {
		const { server } = this.plugin;
		try {
			if (this.isPaired) return await server.doctor();
			const [{ version }, models] = await Promise.all([server.health(), server.models()]);
			return [
				{ name: "elbowroom", state: "ok", told: `elbowroom ${version ?? ""} answers.`, remedy: null },
				models.length
					? { name: "models", state: "ok", told: models.length === 1 ? "One model is offered." : `${models.length} models are offered.`, remedy: null }
					: { name: "models", state: "problem", told: "No model is offered.", remedy: "Load one in LM Studio, or make an agent." },
				{ name: "pairing", state: "warning", told: "This vault is not paired.", remedy: "Pair it to see the other checks and the settings of elbowroom." },
			];
		} catch (error) {
			return [{ name: "elbowroom", state: "problem", told: errorWords(error), remedy: null }];
		}
	}

	addControl(setting, control) {
		const value = this.getControlValue(control.key);
		const disabled = typeof control.disabled === "function" ? control.disabled() : control.disabled === true;
		const keep = (/** @type {unknown} */ changed) => void this.setControlValue(control.key, changed);
		if (control.type === "dropdown") setting.addDropdown((dropdown) => dropdown.addOptions(control.options).setValue(String(value)).setDisabled(disabled).onChange(keep));
		else if (control.type === "toggle") setting.addToggle((toggle) => toggle.setValue(value === true).setDisabled(disabled).onChange(keep));
		else if (control.type === "slider") {
			setting.addSlider((slider) => slider.setLimits(control.min, control.max, control.step).setValue(Number(value)).setDynamicTooltip().setDisabled(disabled).onChange(keep));
		}
	}
}

function checkRow({ name, state, told, remedy }) {
	const element = createEl("li", { cls: "elbowroom-check", attr: { "data-state": state } });
	element.createSpan({ cls: "elbowroom-check-state", text: `${STATES[state] ?? state}: ` });
	element.createSpan({ text: told || name });
	if (remedy) element.createDiv({ cls: "elbowroom-remedy", text: remedy });
	return element;
}

// main.js

// The plugin: what it adds to Obsidian, and what its parts share.

class ElbowroomPlugin extends Plugin {
	events = new Events();
	preferences = preferencesFrom(null);
	server = new Server({
		address: () => baseAddress(this.preferences.address),
		token: () => tokenOf(this.app, this.preferences),
		user: () => this.preferences.user,
	});

	async onload() {
		await this.loadPreferences();
		this.registerView(VIEW_TYPE, (leaf) => new ChatView(leaf, this));
		this.addRibbonIcon("message-square-text", "Open the chat", () => this.activateView());
		this.addCommand({ id: "open-chat", name: "Open the chat", callback: () => this.activateView() });
		this.addCommand({ id: "new-conversation", name: "Begin a new conversation", callback: async () => (await this.activateView())?.begin() });
		addEditorCommands(this);
		this.addFileMenu();
		this.addSettingTab(new ElbowroomSettingTab(this));
		this.addFill();
	}

	/** Has all that is open end what it asks for. */
	onunload() {
		this.events.trigger("unload");
	}

	/** Shows the chat, in the right sidebar where it is not open yet. */
	async activateView() {
		const { workspace } = this.app;
		const leaf = workspace.getLeavesOfType(VIEW_TYPE)[0] ?? workspace.getRightLeaf(false);
		if (!leaf) return null;
		if (leaf.view.getViewType() !== VIEW_TYPE) await leaf.setViewState({ type: VIEW_TYPE, active: true });
		await workspace.revealLeaf(leaf);
		return leaf.view instanceof ChatView ? leaf.view : null;
	}

	/** Keeps the preferences, and tells all who show what depends on them. */
	async savePreferences() {
		await this.saveData(this.preferences);
		this.events.trigger("settings");
	}

	async onExternalSettingsChange() {
		await this.loadPreferences();
		this.events.trigger("settings");
	}

	async loadPreferences() {
		let kept = null;
		try {
			kept = await this.loadData();
		} catch (error) {
			new Notice(`What Elbowroom keeps in this vault cannot be read, so its settings are as at first. ${errorWords(error)}`);
		}
		this.preferences = preferencesFrom(kept);
		if (moveToken(this.app, this.preferences)) await this.saveData(this.preferences);
	}

	/** Lets a note be taken to the chat from its menu. */
	addFileMenu() {
		this.registerEvent(this.app.workspace.on("file-menu", (menu, file) => {
			if (!(file instanceof TFile) || file.extension !== "md") return;
			menu.addItem((item) => item.setTitle("Add to the chat").setIcon("message-square-text").onClick(async () => {
				await (await this.activateView())?.composer?.addNote(file);
			}));
		}));
	}

	/** Shows in the status bar how full the window of the open chat is, and which model answers. */
	addFill() {
		const item = this.addStatusBarItem();
		item.addClass("elbowroom-status", "mod-clickable");
		item.setAttrs({ role: "button", tabindex: "0" });
		item.hide();
		this.registerDomEvent(item, "click", () => void this.activateView());
		this.registerDomEvent(item, "keydown", (event) => { if (event.key === "Enter" || event.key === " ") void this.activateView(); });
		this.registerEvent(this.events.on("context", (...told) => {
			const { context, model } = /** @type {Shown} */ (told[0]);
			const { state, share, words } = fillOf(context);
			item.toggle(Boolean(model));
			item.dataset.state = state;
			item.setText(state === "unknown" ? model : `${model} ${Math.round(share * 100)} %`);
			item.setAttr("aria-label", `${model}. ${words}. Open the chat.`);
		}));
	}
}

module.exports = ElbowroomPlugin;
