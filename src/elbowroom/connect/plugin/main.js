// The plugin of elbowroom, joined from obsidian/src by obsidian/build.mjs.
"use strict";

const {
	Events,
	Modal,
	Notice,
	Platform,
	Plugin,
	PluginSettingTab,
	SecretComponent,
	Setting,
	requestUrl,
} = require("obsidian");

// gauge.js

// How full a window is: a bar with marks where the older part is summarised and where an answer is stopped.

/** @typedef {import("./server.js").ContextFill} ContextFill */

/**
 * @param {number} value
 */
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
	/** @param {HTMLElement} parent */
	constructor(parent) {
		this.element = parent.createDiv({ cls: "elbowroom-gauge", attr: { role: "meter", "aria-label": "Fill of the window", "aria-valuemin": "0" } });
		this.bar = this.element.createDiv({ cls: "elbowroom-gauge-bar" });
		this.marks = ["summarised from", "answer stopped at"].map((told) => ({ told, element: this.element.createDiv({ cls: "elbowroom-gauge-mark" }) }));
		this.show(null);
	}

	/** @param {ContextFill | null | undefined} context */
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

// preferences.js

// What a person chose in this vault. All else is a setting of elbowroom itself, and is kept there.

const SECRET = "elbowroom-token";

/**
 * @typedef {object} Preferences
 * @property {string} address Where elbowroom is, as the person typed it.
 * @property {string} secret The name of the token in Obsidian's secret storage, empty for none.
 * @property {string} token The token itself, only where this Obsidian has no secret storage.
 * @property {string} agent The agent or model that answers new conversations, empty for the first there is.
 * @property {boolean} noticesAsPopups Whether compactions are told in Obsidian's notices too.
 * @property {"none" | "selection" | "note"} noteContext What of the note at work goes along with a question.
 * @property {Record<string, string>} seen elbowroom's settings when they were last read, shown while it is away.
 */

/** @type {Readonly<Preferences>} */
const DEFAULTS = Object.freeze({
	address: "http://127.0.0.1:2345",
	secret: "",
	token: "",
	agent: "",
	noticesAsPopups: true,
	noteContext: "none",
	seen: {},
});

/**
 * Returns preferences from what a file holds, whatever that is: what has another type is as by default.
 * @param {unknown} data
 * @returns {Preferences}
 */
function preferencesFrom(data) {
	const kept = /** @type {Record<string, unknown>} */ (data !== null && typeof data === "object" ? data : {});
	const same = Object.entries(DEFAULTS).filter(([key, value]) => typeof kept[key] === typeof value && kept[key] !== null);
	const preferences = /** @type {Preferences} */ ({ ...DEFAULTS, ...Object.fromEntries(same.map(([key]) => [key, kept[key]])) });
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
	app.secretStorage.setSecret(preferences.secret || SECRET, token);
	preferences.secret ||= SECRET;
	preferences.token = "";
}

// server.js

// Requests to elbowroom. No other address is ever asked for anything.

/**
 * @typedef {object} ModelRow An agent, or a model as provider/model.
 * @property {string} id
 * @property {string} [name]
 * @property {string} [owned_by]
 * @property {number} [context_length] The window in tokens.
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
 * @property {number | null} seconds
 * @property {string} rung How it was done.
 * @property {string | null} summary
 * @property {number | null} messages_removed
 * @property {number | null} undone When a person took it back.
 */

/**
 * @typedef {object} ConversationRow
 * @property {string} id
 * @property {string} name
 * @property {string} agent
 * @property {string} title
 * @property {number} created
 * @property {number} updated
 * @property {"running" | "idle"} status
 * @property {ContextFill | null} context
 * @property {CompactionRow[]} [compactions]
 * @property {{ data: MessageRow[], has_more: boolean, next: string | null }} [messages] Where they were asked for.
 */

/**
 * @typedef {object} ChatMessage
 * @property {string} role
 * @property {string | { type: string, text?: string }[] | null} [content]
 * @property {{ id: string, function: { name: string, arguments: string } }[]} [tool_calls]
 * @property {string} [tool_call_id]
 */

/**
 * @typedef {object} MessageRow
 * @property {string} id
 * @property {number} number
 * @property {number} created
 * @property {string} status
 * @property {string | null} turn
 * @property {string | null} turn_status
 * @property {Record<string, string>} calls The state of each call by its id.
 * @property {boolean} hidden No client has seen it.
 * @property {string} key
 * @property {string} parent
 * @property {string | null} reasoning
 * @property {string | null} full_output
 * @property {ChatMessage} message
 */

/**
 * @typedef {object} QueuedRow
 * @property {string} id
 * @property {"steer" | "follow_up"} mode
 * @property {ChatMessage} message
 */

/** @typedef {{ name: string, state: "ok" | "warning" | "problem", told: string, remedy: string | null }} DoctorRow */

/**
 * @typedef {object} SettingsAnswer
 * @property {{ compaction: Record<string, unknown> } & Record<string, unknown>} values
 * @property {Record<string, string>} locked What a flag or a variable sets, and which.
 */

/** @typedef {{ method?: string, body?: unknown, signal?: AbortSignal | null, headers?: Record<string, string> }} RequestOptions */

/** What went wrong, in words for the person. A `status` of 0 says that nothing answered. */
class ServerError extends Error {
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
function errorOf(status, text, header) {
	const value = parsed(text);
	const told = /** @type {{ message?: string, code?: string, param?: string }} */ (isObject(value) && isObject(value.error) ? value.error : {});
	const wait = Number.parseFloat(header("Retry-After") ?? "");
	return new ServerError(told.message || `elbowroom answered with status ${status}.`, status, {
		code: told.code, param: told.param, retryAfter: Number.isFinite(wait) ? wait : null,
	});
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

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isObject(value) {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The elbowroom at the address that is set; address and token are read anew for each request. */
class Server {
	/** @param {{ address: () => string, token: () => string }} where */
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
		const token = this.where.token();
		return token ? { Authorization: `Bearer ${token}`, ...more } : more;
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

	/** @param {Record<string, unknown>} patch */
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

	/**
	 * @param {{ q?: string, before?: string | null, limit?: number, signal?: AbortSignal }} [wanted]
	 */
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

	/**
	 * @param {string} id
	 * @param {{ before?: string, after?: string, limit?: number, order?: "asc" | "desc", signal?: AbortSignal }} [wanted]
	 */
	async messages(id, { signal, ...wanted } = {}) {
		const given = Object.entries(wanted).filter(([, value]) => value !== undefined);
		const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
		return /** @type {{ data: MessageRow[], has_more: boolean, next: string | null }} */ (
			await this.json(`${route(id)}/messages?${query}`, { signal }));
	}

	/** @param {string} id */
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

	/** @param {string} id */
	async queued(id) {
		const answer = /** @type {{ data: QueuedRow[] }} */ (await this.json(`${route(id)}/queue`));
		return answer.data;
	}

	/**
	 * @param {string} id
	 * @param {string} message
	 */
	async unqueue(id, message) {
		return this.json(`${route(id)}/queue/${encodeURIComponent(message)}`, { method: "DELETE" });
	}

	/**
	 * @param {string} id
	 * @param {string} title
	 */
	async rename(id, title) {
		return this.json(route(id), { method: "PATCH", body: { title } });
	}

	/** @param {string} id */
	async remove(id) {
		return this.json(route(id), { method: "DELETE" });
	}

	/**
	 * @param {string} id
	 * @param {{ focus?: string, preview?: boolean }} [wanted]
	 */
	async compact(id, wanted = {}) {
		return /** @type {{ compacted: boolean, before: number, after: number, seconds: number }} */ (
			await this.json(`${route(id)}/compact`, { method: "POST", body: wanted }));
	}

	/** @param {string} id */
	async undo(id) {
		return this.json(`${route(id)}/compact/undo`, { method: "POST", body: {} });
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

// pairing.js

// Trades the code that elbowroom shows for a token of this device.

/** Asks for the code; `done` is called once the token is kept. */
class PairingModal extends Modal {
	/**
	 * @param {import("./main.js").default} plugin
	 * @param {() => void} [done]
	 */
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
			this.problem?.setText(error instanceof Error ? error.message : String(error));
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

// settings_tab.js

// The settings: this vault's own, and those of elbowroom, which are changed there and shown as they are there.

const SAME = "same";
const COMPACTION = "compaction.";
const FRESH_SECONDS = 3;
const STATES = { ok: "Works", warning: "Look at this", problem: "Does not work" };

/**
 * @typedef {object} Row One setting: a control by its key, or something of its own.
 * @property {string} name
 * @property {string} desc
 * @property {import("obsidian").SettingControl} [control]
 * @property {(setting: Setting) => void | (() => void)} [render]
 * @property {() => boolean} [visible]
 */

class ElbowroomSettingTab extends PluginSettingTab {
	icon = "panel-left-right-dashed";
	/** @type {import("./server.js").ModelRow[]} */
	models = [];
	/** @type {{ id: string, name?: string }[]} */
	agents = [];
	/** @type {import("./server.js").SettingsAnswer | null} */
	settings = null;
	problem = "";
	#askedAt = 0;

	/** @param {import("./main.js").default} plugin */
	constructor(plugin) {
		super(plugin.app, plugin);
		this.plugin = plugin;
	}

	/** @returns {{ heading: string, rows: Row[] }[]} */
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
		this.containerEl.empty();
		for (const { heading, rows } of this.groups()) {
			new Setting(this.containerEl).setName(heading).setHeading();
			for (const row of rows) {
				if (row.visible && !row.visible()) continue;
				const setting = new Setting(this.containerEl).setName(row.name).setDesc(row.desc);
				if (row.control) this.addControl(setting, row.control);
				else row.render?.(setting);
			}
		}
	}

	/** @returns {Row[]} */
	connection() {
		return [
			{
				name: "Address", desc: "Where elbowroom runs. On a phone, the address of that computer in your network.",
				control: {
					type: "text", key: "address", placeholder: "http://127.0.0.1:2345",
					validate: (value) => (baseAddress(value) ? undefined : "This is no address. It looks like http://127.0.0.1:2345."),
				},
			},
			{ name: "Pairing", desc: "Gives this vault a token of its own, which you can take back on elbowroom's page.", render: (setting) => this.showPairing(setting) },
			{
				name: "Token", desc: "Kept in Obsidian's secret storage. Pairing fills it in; a token of your own works too.",
				render: (setting) => this.showToken(setting),
			},
			{ name: "Test", desc: "Looks whether everything is as it should be.", render: (setting) => this.showTest(setting) },
		];
	}

	/** @returns {Row[]} */
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

	/** @returns {Row[]} */
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

	/**
	 * @param {string} key
	 * @param {string} words
	 */
	about(key, words) {
		const by = this.settings?.locked[COMPACTION + key];
		return by ? `${words} It is set by ${by} and cannot be changed here.` : words;
	}

	/** @param {string} key */
	isFixed(key) {
		return !this.settings || COMPACTION + key in this.settings.locked;
	}

	/** @param {string} key */
	getControlValue(key) {
		const { preferences } = this.plugin;
		if (!key.startsWith(COMPACTION)) return preferences[/** @type {"address"} */ (key)];
		const name = key.slice(COMPACTION.length);
		const value = this.settings?.values.compaction[name] ?? preferences.seen[name] ?? { pruning_agent: SAME, threshold_ratio: 0.8, notices: "auto" }[name];
		return name === "threshold_ratio" ? Math.round(Number(value) * 100) : value;
	}

	/**
	 * @param {string} key
	 * @param {unknown} value
	 */
	async setControlValue(key, value) {
		if (key.startsWith(COMPACTION)) {
			const name = key.slice(COMPACTION.length);
			await this.change({ [name]: name === "threshold_ratio" ? Number(value) / 100 : value });
		} else {
			Object.assign(this.plugin.preferences, { [key]: value });
			await this.plugin.savePreferences();
			if (key === "address") void this.refresh(true);
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
			new Notice(messageOf(error));
		}
		this.redraw();
	}

	/** @param {import("./server.js").SettingsAnswer} answer */
	take(answer) {
		this.settings = answer;
		const { pruning_agent: agent, threshold_ratio: ratio, notices } = answer.values.compaction;
		this.plugin.preferences.seen = { pruning_agent: String(agent), threshold_ratio: String(ratio), notices: String(notices) };
		void this.plugin.saveData(this.plugin.preferences);
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
			this.problem = messageOf(error);
		}
		this.redraw();
	}

	/** Shows what is known now. */
	redraw() {
		if (!this.containerEl.isConnected) return;
		if ("settingItems" in this) this.update();
		else /** @type {ElbowroomSettingTab} */ (this).display();
	}

	/** @param {Setting} setting */
	showState(setting) {
		const again = () => void this.refresh();
		const { win } = setting.settingEl;
		win.addEventListener("focus", again);
		void this.refresh();
		setting.addExtraButton((button) => button.setIcon("refresh-cw").setTooltip("Read them again").onClick(() => void this.refresh(true)));
		return () => win.removeEventListener("focus", again);
	}

	/** @param {Setting} setting */
	showPairing(setting) {
		setting.addButton((button) => button.setButtonText(this.isPaired ? "Pair again" : "Pair").onClick(() => {
			new PairingModal(this.plugin, () => void this.refresh(true)).open();
		}));
	}

	/** @param {Setting} setting */
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
				text.setValue(preferences.token).onChange(async (value) => {
					preferences.token = value.trim();
					await this.plugin.savePreferences();
				});
			});
		}
	}

	/** @param {Setting} setting */
	showTest(setting) {
		const results = createEl("ul", { cls: "elbowroom-checks", attr: { role: "status" } });
		setting.addButton((button) => button.setButtonText("Test").onClick(async () => {
			button.setDisabled(true);
			results.replaceChildren(createEl("li", { text: "Looking…" }));
			const rows = await this.examined();
			results.replaceChildren(...rows.map(checkRow));
			button.setDisabled(false);
		}));
		setting.infoEl.append(results);
	}

	/** @returns {Promise<import("./server.js").DoctorRow[]>} The doctor's sentences, or what can be seen from here. */
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
			return [{ name: "elbowroom", state: "problem", told: messageOf(error), remedy: null }];
		}
	}

	/**
	 * @param {Setting} setting
	 * @param {import("obsidian").SettingControl} control
	 */
	addControl(setting, control) {
		const value = this.getControlValue(control.key);
		const disabled = typeof control.disabled === "function" ? control.disabled() : control.disabled === true;
		const keep = (/** @type {unknown} */ changed) => void this.setControlValue(control.key, changed);
		if (control.type === "dropdown") setting.addDropdown((dropdown) => dropdown.addOptions(control.options).setValue(String(value)).setDisabled(disabled).onChange(keep));
		else if (control.type === "toggle") setting.addToggle((toggle) => toggle.setValue(value === true).setDisabled(disabled).onChange(keep));
		else if (control.type === "slider") {
			setting.addSlider((slider) => slider.setLimits(control.min, control.max, control.step).setValue(Number(value)).setDynamicTooltip().setDisabled(disabled).onChange(keep));
		} else if (control.type === "text") {
			setting.addText((text) => text.setValue(String(value)).setPlaceholder(control.placeholder ?? "").onChange((typed) => {
				if (!control.validate?.(typed)) keep(typed);
			}));
		}
	}
}

/** @param {import("./server.js").DoctorRow} row */
function checkRow({ name, state, told, remedy }) {
	const element = createEl("li", { cls: "elbowroom-check", attr: { "data-state": state } });
	element.createSpan({ cls: "elbowroom-check-state", text: `${STATES[state] ?? state}: ` });
	element.createSpan({ text: told || name });
	if (remedy) element.createDiv({ cls: "elbowroom-remedy", text: remedy });
	return element;
}

/** @param {unknown} error */
function messageOf(error) {
	return error instanceof Error ? error.message : String(error);
}

// main.js

// The plugin: what it adds to Obsidian, and what its parts share.

/** @typedef {{ conversation: string, context: import("./server.js").ContextFill | null, model: string }} Shown What the status bar tells. */

class ElbowroomPlugin extends Plugin {
	events = new Events();
	preferences = preferencesFrom(null);
	server = new Server({
		address: () => baseAddress(this.preferences.address),
		token: () => tokenOf(this.app, this.preferences),
	});

	async onload() {
		this.preferences = preferencesFrom(await this.loadData());
		this.addSettingTab(new ElbowroomSettingTab(this));
		this.addFill();
	}

	/** Keeps the preferences, and tells all who show what depends on them. */
	async savePreferences() {
		await this.saveData(this.preferences);
		this.events.trigger("settings");
	}

	async onExternalSettingsChange() {
		this.preferences = preferencesFrom(await this.loadData());
		this.events.trigger("settings");
	}

	/** Shows in the status bar how full the window of the open chat is, and which model answers. */
	addFill() {
		const item = this.addStatusBarItem();
		item.addClass("elbowroom-status", "mod-clickable");
		item.setAttrs({ role: "button", tabindex: "0" });
		item.hide();
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
