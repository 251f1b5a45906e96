// Requests to elbowroom. No other address is ever asked for anything.
import { requestUrl } from "obsidian";
import { answers, isObject, readAs } from "./answers.js";

/**
 * @typedef {object} ModelRow An agent, or a model as provider/model.
 * @property {string} id
 * @property {string} [name]
 * @property {string} [owned_by]
 * @property {number} [context_length] The window in tokens, or the one that the settings have it advertise.
 * @property {number} [loaded_context_length] The window that is really loaded; 0 where none is.
 */

/**
 * @typedef {object} ContextFill How full the window of a conversation is, in tokens.
 * @property {number} tokens
 * @property {number} window
 * @property {number | null} [trigger] From here on the older part is summarised.
 * @property {number | null} [stop_at] Here an answer is stopped for that.
 */

/**
 * @typedef {object} CompactionRow
 * @property {number} at When, in seconds since 1970.
 * @property {number} before Tokens of the prompt.
 * @property {number} after
 * @property {string} rung How it was done.
 * @property {string | null} summary
 * @property {number | null} messages_removed
 * @property {number | null} undone When a person took it back.
 */

/**
 * @typedef {object} ConversationRow
 * @property {string} id
 * @property {string} agent
 * @property {string} title
 * @property {number} updated
 * @property {string} status "running" or "idle".
 * @property {ContextFill | null} context
 * @property {object} [usage]
 * @property {CompactionRow[]} compactions
 * @property {boolean} works_ahead Whether something is done for the next turn, behind the answer.
 */

/** @typedef {{ type: string, text?: string | undefined, image_url?: { url: string } }} ContentPart */

/**
 * @typedef {object} ChatMessage
 * @property {string} role
 * @property {string | ContentPart[] | null} [content]
 * @property {{ id: string, function: { name: string, arguments: string } }[] | undefined} [tool_calls]
 * @property {string | undefined} [tool_call_id]
 */

/**
 * @typedef {object} MessageRow
 * @property {string} id
 * @property {number} number
 * @property {number} created
 * @property {string | null} turn
 * @property {string | null} turn_status
 * @property {Record<string, string>} calls The state of each call by its id.
 * @property {boolean} hidden No client has seen it.
 * @property {string | null} reasoning
 * @property {{ role: string, text: string }[]} recalled What came back unasked with it.
 * @property {ChatMessage} message
 */

/**
 * @typedef {object} QueuedRow
 * @property {string} id
 * @property {ChatMessage} message
 */

/** @typedef {{ id: string, agent: string, what: string, when: number, notes: string[] }} ChangeRow What an agent did to notes. */

/** @typedef {{ name: string, state: "ok" | "warning" | "problem", told: string, remedy: string | null }} DoctorRow */

/**
 * @typedef {object} SettingsAnswer
 * @property {{ compaction: Record<string, unknown> } & Record<string, unknown>} values
 * @property {Record<string, string>} locked What a flag or a variable sets, and which.
 */

/** @typedef {{ method?: string, body?: unknown, signal?: AbortSignal | null, headers?: Record<string, string> }} RequestOptions */

/** What went wrong, in words for the person. A `status` of 0 says that nothing answered. */
export class ServerError extends Error {
	/**
	 * @param {string} message
	 * @param {number} status
	 * @param {{ code?: string | null, param?: string | null, retryAfter?: number | null }} [told]
	 */
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
export function errorOf(status, text, header) {
	const value = parsed(text);
	const told = /** @type {{ message?: string, code?: string, param?: string }} */ (isObject(value) && isObject(value.error) ? value.error : {});
	const wait = Number.parseFloat(header("Retry-After") ?? "");
	return new ServerError(told.message || `elbowroom answered with status ${status}.`, status, {
		code: told.code, param: told.param, retryAfter: Number.isFinite(wait) ? wait : null,
	});
}

/** Tells whether something was given up; the error may be of another window's kind. */
/** @param {unknown} error */
export function isAbort(error) {
	return typeof error === "object" && error !== null && "name" in error && error.name === "AbortError";
}

/** @param {unknown} error */
export function errorWords(error) {
	return error instanceof Error ? error.message : String(error);
}

/**
 * @param {string} text
 * @returns {unknown} Undefined where it is no JSON.
 */
export function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

/** The elbowroom at the address that is set; address and token are read anew for each request. */
export class Server {
	/** @param {{ address: () => string, token: () => string, user: () => string }} where */
	constructor(where) {
		this.where = where;
	}

	/** Returns the whole address of a route. Raises ServerError where none is set. */
	/** @param {string} path */
	url(path) {
		const address = this.where.address();
		if (!address) throw new ServerError("No address of elbowroom is set. Type it in the plugin's settings, such as http://127.0.0.1:2345.", 0);
		return address + path;
	}

	/**
	 * @param {Record<string, string>} more
	 * @returns {Record<string, string>}
	 */
	headers(more = {}) {
		const [token, user] = [this.where.token(), this.where.user()].map((text) => text.replace(/[^ -~]/g, "").trim()); // headers hold no other letters
		return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(user ? { "X-Elbowroom-User": user } : {}), ...more };
	}

	/** The sentence for an address at which nothing answers. */
	away() {
		return new ServerError(`elbowroom does not answer at ${this.where.address()}. Is it running?`, 0, { code: "away" });
	}

	/**
	 * Asks for JSON. A signal only ends the waiting: Obsidian cannot take such a request back.
	 * @template T
	 * @param {import("./answers.js").Reader<T>} read What the answer has to be.
	 * @param {string} path
	 * @param {RequestOptions} [options]
	 * @returns {Promise<T>}
	 * @throws {ServerError} Also where what answers is no elbowroom.
	 */
	async json(read, path, { method = "GET", body, signal, headers = {} } = {}) {
		const url = this.url(path);
		signal?.throwIfAborted();
		const asked = requestUrl({
			url, method, throw: false, headers: this.headers(headers),
			...(body === undefined ? {} : { contentType: "application/json", body: JSON.stringify(body) }),
		}).catch(() => { throw this.away(); });
		const answer = await (signal ? Promise.race([asked, abortOf(signal)]) : asked);
		if (answer.status >= 400) throw errorOf(answer.status, answer.text, (name) => headerIn(answer.headers, name));
		const { value, problem } = readAs(read, answer.text ? parsed(answer.text) : null);
		if (problem) throw new ServerError(`What answers at ${this.where.address()} is no elbowroom, or one of another version than this plugin (${path}: ${problem}).`, 502, { code: "odd_answer" });
		return /** @type {T} */ (value);
	}

	async health() {
		return this.json(answers.health, "/health");
	}

	/** @returns {Promise<ModelRow[]>} */
	async models() {
		return (await this.json(answers.models, "/v1/models")).data;
	}

	/**
	 * Trades the code that elbowroom shows for a token.
	 * @param {string} code
	 * @param {string} name What this device is called there.
	 */
	async pair(code, name) {
		return this.json(answers.paired, "/api/pairing/claim", { method: "POST", body: { code, name } });
	}

	/** @returns {Promise<SettingsAnswer>} */
	async settings() {
		return /** @type {SettingsAnswer} */ (await this.json(answers.settings, "/api/settings"));
	}

	/**
	 * @param {Record<string, unknown>} patch
	 * @returns {Promise<SettingsAnswer>}
	 */
	async changeSettings(patch) {
		return /** @type {SettingsAnswer} */ (await this.json(answers.settings, "/api/settings", { method: "PATCH", body: patch }));
	}

	async agents() {
		return (await this.json(answers.agents, "/api/agents")).data;
	}

	/** @returns {Promise<DoctorRow[]>} */
	async doctor() {
		return /** @type {DoctorRow[]} */ ((await this.json(answers.doctor, "/api/doctor")).data);
	}

	/**
	 * @param {{ q?: string, before?: string | null, limit?: number, signal?: AbortSignal }} [wanted]
	 */
	async conversations({ q = "", before = null, limit = 20, signal } = {}) {
		const query = new URLSearchParams({ limit: String(limit), ...(q ? { q } : {}), ...(before ? { before } : {}) });
		return this.json(answers.conversations, `/v1/conversations?${query}`, { signal });
	}

	/**
	 * @param {string} id
	 * @param {{ limit?: number, signal?: AbortSignal }} [options] With `limit` its last messages come along.
	 * @returns {Promise<ConversationRow>}
	 */
	async conversation(id, { limit, signal } = {}) {
		return this.json(answers.conversation, `${route(id)}${limit ? `?limit=${limit}` : ""}`, { signal });
	}

	/**
	 * @param {string} id
	 * @param {{ before?: string, after?: string, limit?: number, order?: "asc" | "desc", signal?: AbortSignal }} [wanted]
	 * @returns {Promise<{ data: MessageRow[], has_more: boolean, next: string | null }>}
	 */
	async messages(id, { signal, ...wanted } = {}) {
		const given = Object.entries(wanted).filter(([, value]) => value !== undefined);
		const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
		return this.json(answers.messages, `${route(id)}/messages?${query}`, { signal });
	}

	/** @param {string} id */
	async cancel(id) {
		return this.json(answers.nothing, `${route(id)}/cancel`, { method: "POST", body: {} });
	}

	/**
	 * Says something to a conversation that is being answered.
	 * @param {string} id
	 * @param {string | ContentPart[]} content
	 * @param {"steer" | "follow_up"} [mode]
	 */
	async queue(id, content, mode = "steer") {
		return this.json(answers.taken, `${route(id)}/queue`, { method: "POST", body: { content, mode } });
	}

	/**
	 * Reads what waits, and what has waited for an answer that was stopped.
	 * @param {string} id
	 * @returns {Promise<{ data: QueuedRow[], dropped: QueuedRow[] }>}
	 */
	async queued(id) {
		return this.json(answers.queued, `${route(id)}/queue`);
	}

	/**
	 * @param {string} id
	 * @param {string} message
	 */
	async unqueue(id, message) {
		return this.json(answers.nothing, `${route(id)}/queue/${encodeURIComponent(message)}`, { method: "DELETE" });
	}

	/**
	 * @param {string} id
	 * @param {string} title
	 */
	async rename(id, title) {
		return this.json(answers.nothing, route(id), { method: "PATCH", body: { title } });
	}

	/** @param {string} id */
	async remove(id) {
		return this.json(answers.nothing, route(id), { method: "DELETE" });
	}

	/**
	 * @param {string} id
	 * @param {{ focus?: string, preview?: boolean }} [wanted]
	 */
	async compact(id, wanted = {}) {
		return this.json(answers.compacted, `${route(id)}/compact`, { method: "POST", body: wanted });
	}

	/** @param {string} id */
	async undo(id) {
		return this.json(answers.compacted, `${route(id)}/compact/undo`, { method: "POST", body: {} });
	}

	async vaultChanges() {
		return (await this.json(answers.changes, "/api/vault/changes")).data;
	}

	/** @param {string} change */
	async undoChange(change) {
		return this.json(answers.undone, `/api/vault/changes/${encodeURIComponent(change)}/undo`, { method: "POST", body: {} });
	}

	/**
	 * Counts messages with the model's own tokenizer, as they would be sent.
	 * @param {string} model
	 * @param {ChatMessage[]} messages
	 * @param {AbortSignal} [signal]
	 */
	async countTokens(model, messages, signal) {
		return (await this.json(answers.counted, "/v1/chat/completions/input_tokens", { method: "POST", body: { model, messages }, signal })).input_tokens;
	}
}

/** @param {string} id */
function route(id) {
	return `/v1/conversations/${encodeURIComponent(id)}`;
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<never>}
 */
function abortOf(signal) {
	return new Promise((_, fail) => {
		const leave = () => fail(new DOMException("The request was given up.", "AbortError"));
		if (signal.aborted) leave();
		else signal.addEventListener("abort", leave, { once: true });
	});
}

/**
 * @param {Record<string, string>} headers
 * @param {string} name
 */
function headerIn(headers, name) {
	const found = Object.keys(headers).find((key) => key.toLowerCase() === name.toLowerCase());
	return found === undefined ? null : headers[found];
}
