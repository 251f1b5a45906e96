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
	arrayBufferToBase64,
	debounce,
	moment,
	normalizePath,
	requestUrl,
	setIcon,
} = require("obsidian");

// server/answers.js

// What elbowroom answers, looked at once: whatever comes after may rely on its form.

class Odd extends Error {}

const text = (value) => typeof value === "string" ? value : odd("a text", value);
const number = (value) => typeof value === "number" && Number.isFinite(value) ? value : odd("a number", value);
const truth = (value) => typeof value === "boolean" ? value : odd("true or false", value);
const record = (value) => isObject(value) ? value : odd("an object", value);
const nothing = () => null;
const texts = (value) => Object.fromEntries(Object.entries(record(value)).map(([key, each]) => [key, text(each)]));

function odd(wanted, value) {
	throw new Odd(`${wanted} was expected, not ${(JSON.stringify(value) ?? "nothing").slice(0, 40)}`);
}

function or(read, otherwise) {
	return (value) => value === undefined || value === null ? otherwise : read(value);
}

function listOf(read) {
	return (value) => Array.isArray(value) ? value.map(read) : odd("a list", value);
}

function object(shape) {
	return (value) => {
		const read = { ...record(value) };
		for (const [key, reader] of Object.entries(shape)) {
			try {
				read[key] = reader(read[key]);
			} catch (error) {
				throw error instanceof Odd ? new Odd(`${key}: ${error.message}`) : error;
			}
		}
		return (read);
	};
}

function isObject(value) {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

const pageOf = (read) => object({ data: listOf(read), has_more: or(truth, false), next: or(text, null) });

const size = or(number, 0);
const fill = object({ tokens: size, window: size, trigger: or(number, null), stop_at: or(number, null) });
const compaction = object({
	at: number, before: size, after: size, rung: or(text, ""), summary: or(text, null), messages_removed: or(number, null), undone: or(number, null),
});
const call = object({ id: text, function: object({ name: text, arguments: text }) });
const content = (value) => typeof value === "string" ? value : (listOf(object({ type: text, text: or(text, undefined) }))(value));
const message = object({ role: text, content: or(content, null), tool_calls: or(listOf(call), undefined), tool_call_id: or(text, undefined) });
const row = object({
	id: text, number: size, created: number, turn: or(text, null), turn_status: or(text, null), calls: or(texts, {}), hidden: or(truth, false),
	reasoning: or(text, null), recalled: or(listOf(object({ role: text, text })), []), message,
});
const conversation = object({
	id: text, agent: or(text, ""), title: or(text, ""), updated: number, status: or(text, "idle"), context: or(fill, null), compactions: or(listOf(compaction), []),
	works_ahead: or(truth, false),
});

const answers = {
	nothing,
	health: object({ version: or(text, "") }),
	models: object({ data: listOf(object({ id: text, name: or(text, ""), context_length: size, loaded_context_length: size })) }),
	paired: object({ token: text }),
	settings: object({ values: object({ compaction: record }), locked: or(texts, {}) }),
	agents: object({ data: listOf(object({ id: text, name: or(text, ""), enabled: or(truth, true), tools: or(listOf(text), []) })) }),
	doctor: object({ data: listOf(object({ name: text, state: text, told: or(text, ""), remedy: or(text, null) })) }),
	conversation,
	conversations: pageOf(conversation),
	messages: pageOf(row),
	taken: object({ id: text, running: or(truth, true) }),
	queued: object({ data: listOf(object({ id: text, message })), dropped: or(listOf(object({ id: text, message })), []) }),
	compacted: object({ compacted: or(truth, true), after: or(number, null) }),
	changes: object({ data: listOf(object({ id: text, agent: or(text, ""), what: text, when: number, notes: listOf(text) })) }),
	undone: object({ told: or(text, "") }),
	counted: object({ input_tokens: number }),
	completion: object({
		choices: listOf(object({ message: or(object({ content: or(text, ""), reasoning_content: or(text, "") }), null), finish_reason: or(text, "stop") })), usage: or(record, null),
	}),
};

function readAs(read, value) {
	try {
		return { value: read(value), problem: "" };
	} catch (error) {
		if (error instanceof Odd) return { value: null, problem: error.message };
		throw error;
	}
}

// server/server.js

// Requests to elbowroom. No other address is ever asked for anything.

class ServerError extends Error {
	constructor(message, status, told = {}) {
		super(message);
		this.name = "ServerError";
		this.status = status;
		this.code = told.code ?? null;
		this.param = told.param ?? null;
		this.retryAfter = told.retryAfter ?? null;
	}

	get needsPairing() {
		return this.status === 401 || this.code === "pairing_needed";
	}
}

function errorOf(status, text, header) {
	const value = parsed(text);
	const told = (isObject(value) && isObject(value.error) ? value.error : {});
	const wait = Number.parseFloat(header("Retry-After") ?? "");
	return new ServerError(told.message || `elbowroom answered with status ${status}.`, status, {
		code: told.code, param: told.param, retryAfter: Number.isFinite(wait) ? wait : null,
	});
}

function isAbort(error) {
	return typeof error === "object" && error !== null && "name" in error && error.name === "AbortError";
}

function errorWords(error) {
	return error instanceof Error ? error.message : String(error);
}

function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

class Server {
	constructor(where) {
		this.where = where;
	}

	url(path) {
		const address = this.where.address();
		if (!address) throw new ServerError("No address of elbowroom is set. Type it in the plugin's settings, such as http://127.0.0.1:2345.", 0);
		return address + path;
	}

	headers(more = {}) {
		const [token, user] = [this.where.token(), this.where.user()].map((text) => text.replace(/[^ -~]/g, "").trim()); // headers hold no other letters
		return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(user ? { "X-Elbowroom-User": user } : {}), ...more };
	}

	away() {
		return new ServerError(`elbowroom does not answer at ${this.where.address()}. Is it running?`, 0, { code: "away" });
	}

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
		return (value);
	}

	async health() {
		return this.json(answers.health, "/health");
	}

	async models() {
		return (await this.json(answers.models, "/v1/models")).data;
	}

	async pair(code, name) {
		return this.json(answers.paired, "/api/pairing/claim", { method: "POST", body: { code, name } });
	}

	async settings() {
		return (await this.json(answers.settings, "/api/settings"));
	}

	async changeSettings(patch) {
		return (await this.json(answers.settings, "/api/settings", { method: "PATCH", body: patch }));
	}

	async agents() {
		return (await this.json(answers.agents, "/api/agents")).data;
	}

	async doctor() {
		return ((await this.json(answers.doctor, "/api/doctor")).data);
	}

	async conversations({ q = "", before = null, limit = 20, signal } = {}) {
		const query = new URLSearchParams({ limit: String(limit), ...(q ? { q } : {}), ...(before ? { before } : {}) });
		return this.json(answers.conversations, `/v1/conversations?${query}`, { signal });
	}

	async conversation(id, { limit, signal } = {}) {
		return this.json(answers.conversation, `${route(id)}${limit ? `?limit=${limit}` : ""}`, { signal });
	}

	async messages(id, { signal, ...wanted } = {}) {
		const given = Object.entries(wanted).filter(([, value]) => value !== undefined);
		const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
		return this.json(answers.messages, `${route(id)}/messages?${query}`, { signal });
	}

	async cancel(id) {
		return this.json(answers.nothing, `${route(id)}/cancel`, { method: "POST", body: {} });
	}

	async queue(id, content, mode = "steer") {
		return this.json(answers.taken, `${route(id)}/queue`, { method: "POST", body: { content, mode } });
	}

	async queued(id) {
		return this.json(answers.queued, `${route(id)}/queue`);
	}

	async unqueue(id, message) {
		return this.json(answers.nothing, `${route(id)}/queue/${encodeURIComponent(message)}`, { method: "DELETE" });
	}

	async rename(id, title) {
		return this.json(answers.nothing, route(id), { method: "PATCH", body: { title } });
	}

	async remove(id) {
		return this.json(answers.nothing, route(id), { method: "DELETE" });
	}

	async compact(id, wanted = {}) {
		return this.json(answers.compacted, `${route(id)}/compact`, { method: "POST", body: wanted });
	}

	async undo(id) {
		return this.json(answers.compacted, `${route(id)}/compact/undo`, { method: "POST", body: {} });
	}

	async vaultChanges() {
		return (await this.json(answers.changes, "/api/vault/changes")).data;
	}

	async undoChange(change) {
		return this.json(answers.undone, `/api/vault/changes/${encodeURIComponent(change)}/undo`, { method: "POST", body: {} });
	}

	async countTokens(model, messages, signal) {
		return (await this.json(answers.counted, "/v1/chat/completions/input_tokens", { method: "POST", body: { model, messages }, signal })).input_tokens;
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
	return { id: "", role, text, thought: "", steps: [], status: "complete", at: Date.now() / 1000, between: [], recalled: [], marks: [], sent: null };
}

function unheard(items, kept) {
	const last = items.findLast(({ status }) => status !== "streaming" && status !== "interrupted");
	const isKnown = !last || last.role !== "user" || last.id || kept.some(({ role, text }) => role === "user" && text === last.text);
	return isKnown ? [] : [last];
}

function asShown(items, before) {
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

function messageOf(item) {
	return item.sent ?? { role: item.role, content: item.text };
}

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

function argumentsOf(step) {
	const value = parsed(step.arguments);
	return isObject(value) ? value : {};
}

// notes/attachments.js

// What goes along with a question: notes and selections, in a form that elbowroom shortens where it is too long.

const MOST_AT_ONCE = 20;
const MOST_BYTES = 5_000_000;
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", webp: "image/webp", gif: "image/gif" };
const BLOCK = /<(vault_note|selected_text) path="([^"\n]*)">\n([^]*?)\n<\/\1>\n*/gy; // one right behind the other

async function readNow(app, attachments) {
	const read = await Promise.all(attachments.map(async (attachment) => {
		const { kind, path } = attachment;
		if (kind !== "vault_note" && kind !== "folder") return [attachment];
		const found = app.vault.getAbstractFileByPath(path);
		if (!found) throw new Error(`${path} is not in the vault any more, so it cannot go along. Leave it out, or add it anew.`);
		return Promise.all(notesIn([found]).map((file) => noteAttachment(app, file)));
	}));
	const notes = new Set();
	return read.flat().filter(({ kind, path }) => kind !== "vault_note" || (!notes.has(path) && notes.add(path)));
}

function withAttachments(attachments, question) {
	const images = attachments.filter(({ kind }) => kind === "image");
	const text = [...attachments.filter(({ kind }) => kind !== "image").map(blockOf), question].filter(Boolean).join("\n\n");
	if (!images.length) return text;
	return [...(text ? [{ type: "text", text }] : []), ...images.map(({ text: url }) => ({ type: "image_url", image_url: { url } }))];
}

function blockOf({ kind, path, text }) {
	return `<${kind} path="${path.replaceAll('"', "'")}">\n${text.replaceAll(`</${kind}>`, `<\\/${kind}>`)}\n</${kind}>`;
}

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

async function noteAttachment(app, file) {
	if (file.extension.toLowerCase() in IMAGES) return imageAttachment(app, file);
	if (!["md", "txt", "canvas"].includes(file.extension)) throw new Error(`${file.name} is no note, so it cannot go along.`);
	if (file.stat.size > MOST_BYTES) throw new Error(`${file.name} is too large to go along.`);
	const open = app.workspace.getLeavesOfType("markdown").map(({ view }) => view).find((view) => view instanceof MarkdownView && view.file === file);
	const text = open instanceof MarkdownView ? open.editor.getValue() : await app.vault.read(file); // what is typed is saved a moment later
	return { kind: "vault_note", path: file.path, text, tokens: null };
}

async function imageAttachment(app, file) {
	if (file.stat.size > MOST_BYTES) throw new Error(`${file.name} is too large to go along.`);
	return imageOf(file.path, IMAGES[file.extension.toLowerCase()] ?? "", await app.vault.readBinary(file));
}

async function imagesIn(data) {
	const files = [...data?.files ?? []].filter(({ type }) => Object.values(IMAGES).includes(type));
	return Promise.all(files.map(async (file) => {
		if (file.size > MOST_BYTES) throw new Error(`${file.name || "The picture"} is too large to go along.`);
		return imageOf(file.name || "Picture", file.type, await file.arrayBuffer());
	}));
}

function imageOf(path, type, bytes) {
	return { kind: "image", path, text: `data:${type};base64,${arrayBufferToBase64(bytes)}`, tokens: null };
}

async function folderAttachment(app, folder) {
	const notes = await Promise.all(notesIn([folder]).map((file) => noteAttachment(app, file)));
	return { kind: "folder", path: folder.path, text: notes.map(blockOf).join("\n\n"), tokens: null };
}

async function currentAttachment(app, what) {
	const view = lastNote(app);
	if (!view?.file) return null;
	if (what === "note") return noteAttachment(app, view.file);
	const text = view.editor.getSelection();
	return text ? { kind: "selected_text", path: view.file.path, text, tokens: null } : null;
}

function lastNote(app) {
	const { workspace } = app;
	const seen = [workspace.getActiveViewOfType(MarkdownView), workspace.getMostRecentLeaf()?.view, ...workspace.getLeavesOfType("markdown").map(({ view }) => view)];
	return seen.find((view) => view instanceof MarkdownView) ?? null; // the leaf used last may show no note
}

async function fromDrop(app, data) {
	const images = await imagesIn(data);
	if (images.length) return images;
	const text = data?.getData("text/plain") ?? "";
	const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
	if (!lines.length) throw new Error("Drop a note, a folder or a text here. A file from outside of the vault has to be put into it first.");
	const files = lines.map((line) => fileOf(app, line));
	if (files.every((file) => file !== null)) return Promise.all(notesIn(files).map((file) => noteAttachment(app, file)));
	if (lines.some((line) => line.startsWith("obsidian://"))) throw new Error("This is no note of this vault, so it cannot go along.");
	return [{ kind: "selected_text", path: lastNote(app)?.file?.path ?? "", text, tokens: null }];
}

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

function notesIn(dropped) {
	const found = dropped.flatMap((each) => (each instanceof TFolder ? notesOf(each) : each instanceof TFile ? [each] : []));
	if (!found.length) throw new Error("There is no note in this folder.");
	if (found.length > MOST_AT_ONCE) throw new Error(`These are ${found.length} notes; at most ${MOST_AT_ONCE} go along at once.`);
	return [...new Set(found)];
}

function notesOf(folder) {
	return folder.children.flatMap((child) => (child instanceof TFolder ? notesOf(child) : child instanceof TFile && child.extension === "md" ? [child] : []));
}

class Counting {
	#counting = null;

	constructor(server, tell) {
		this.server = server;
		this.tell = tell;
		this.soon = debounce((model, attachments) => void this.#count(model, attachments), 300, true);
	}

	async #count(model, attachments) {
		this.stop();
		const { signal } = this.#counting = new AbortController();
		try {
			const none = await this.server.countTokens(model, [{ role: "user", content: "." }], signal);
			for (const attachment of attachments.filter(({ tokens }) => tokens === null)) {
				const content = attachment.kind === "folder" ? attachment.text : withAttachments([attachment], "");
				attachment.tokens = await this.server.countTokens(model, [{ role: "user", content }], signal) - none + 1;
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

// chat/marks.js

// What stays at a message of all that elbowroom has told of it: what the model did not get, and what can be done.

const LARGER = "A larger window helps: load the model with more context.";
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
const OPENED_BY = { loaded: ["loading"], compacted: ["compacting"], "not compacted": ["compacting"], remembered: ["remembering"], "tool result": ["tool call"], store: ["store"] };

function helpFor({ kind }) {
	return HELP[kind] ?? "";
}

function addMark(marks, { kind, text, done }) {
	const opened = marks.findLastIndex((mark) => mark.isOpen && (mark.kind === kind || (OPENED_BY[kind] ?? []).includes(mark.kind)));
	const same = marks.find((mark) => mark.kind === kind && !mark.isOpen && helpFor(mark));
	if (kind === "waited") for (const mark of marks) mark.isOpen &&= mark.kind !== "waiting";
	else if (opened >= 0) marks.splice(opened, 1, ...(text ? [{ kind, text, isOpen: !done }] : []));
	else if (same && done) same.text = same.text.includes(text) ? same.text : `${same.text}\n${text}`;
	else if (text) marks.push({ kind, text, isOpen: !done });
}

function isOfQuestion(question, { kind, text }) {
	const names = withoutAttachments(question).attachments.map(({ path }) => path.split("/").at(-1) ?? path);
	return kind === "images" || (kind === "results cut" && names.some((name) => name !== "" && text.includes(name.replace(/\.md$/, ""))));
}

const KEY = "elbowroom-marks";
const MOST_MARKED = 200;

class KeptMarks {
	constructor(app) {
		this.app = app;
	}

	all() {
		const kept = (this.app.loadLocalStorage(KEY));
		return isObject(kept) ? (kept) : {};
	}

	keep(conversation, items) {
		const { [conversation]: before, ...others } = this.all();
		const own = Object.fromEntries(items.flatMap(({ id, marks }) => (id && marks.length ? [[id, marks]] : [])));
		if (!before && !Object.keys(own).length) return;
		const all = Object.entries({ ...others, ...(Object.keys(own).length ? { [conversation]: own } : {}) });
		this.app.saveLocalStorage(KEY, Object.fromEntries(all.slice(-MOST_MARKED)));
	}

	restore(conversation, items) {
		const own = this.all()[conversation];
		for (const item of items) {
			const marks = isObject(own) ? own[item.id] : undefined;
			if (!item.marks.length && Array.isArray(marks)) item.marks = marks.filter((mark) => typeof mark.kind === "string" && typeof mark.text === "string");
		}
		return items;
	}

	forget(conversation) {
		this.keep(conversation, []);
	}
}

// chat/state.js

// The one state that a conversation has, and which one follows on what happens.

const NEXT = {
	new: { ask: "asked" },
	asked: { begun: "writing", end: "new" },
	unread: { read: "idle", busy: "elsewhere" },
	idle: { ask: "writing", busy: "elsewhere" },
	writing: { end: "idle" },
	elsewhere: { read: "idle" },
	closed: {},
};

function nextState(state, change) {
	return change === "close" ? "closed" : NEXT[state][change] ?? state;
}

// server/stream.js

// One chat request, whose answer is read as it streams.

const IN_ONE_PIECE = "This Obsidian lets no answer stream from this address, so it comes in one piece.";

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

async function mayAsk(server) {
	return window.fetch(server.url("/v1/models"), { headers: server.headers(), cache: "no-store", redirect: "error" }).then(() => true, () => false);
}

async function* inOnePiece(server, body, { conversation, signal }) {
	await server.health(); // nothing answers at all: that is another sentence, and nothing is asked twice
	yield { type: "whole", text: IN_ONE_PIECE };
	if (conversation) yield { type: "begun", conversation }; // so that it can be stopped while it is written
	const answer = await server.json(answers.completion, "/v1/chat/completions", {
		method: "POST", body: { ...body, stream: false }, signal: signal ?? null, headers: conversation ? { "X-Conversation-Id": conversation } : {},
	});
	const choice = answer.choices[0];
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
	const { content, reasoning_content: thought } = isObject(delta) ? delta : ({});
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
	const first = (Array.isArray(choices) ? choices[0] : undefined);
	return isObject(first) ? first : {};
}

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
	title = "";
	items = [];
	compactions = [];
	context = null;
	queue = [];
	dropped = [];
	notice = "";
	problem = null;
	version = "";
	worksAhead = false;
	isPicked = false;
	#stopping = null;
	#answering = Promise.resolve();
	#reading = Promise.resolve();
	#timer = null;

	constructor(server, { id = "", model = "", marks = null } = {}) {
		super();
		this.server = server;
		this.model = model;
		this.marks = marks;
		this.id = id || newName();
		this.state = id ? "unread" : "new";
	}

	get isRunning() {
		return this.state === "asked" || this.state === "writing";
	}

	get isBusy() {
		return this.isRunning || this.state === "elsewhere";
	}

	get isPending() {
		return this.isRunning || (!this.isClosed && this.items.at(-1)?.status === "waiting");
	}

	get isKept() {
		return this.state !== "new" && this.state !== "asked";
	}

	get isClosed() {
		return this.state === "closed";
	}

	get isAway() {
		return this.problem?.status === 0;
	}

	#now(change) {
		this.state = nextState(this.state, change);
	}

	changed(what) {
		if (!this.isClosed) this.trigger("changed", what);
	}

	close() {
		this.#now("close");
		this.#stopping?.abort();
		this.#stopTimer();
	}

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

	#show(kept) {
		const before = this.items;
		const isWaiting = before.at(-1)?.status === "waiting";
		this.items = asShown([...kept, ...unheard(before, kept)], before);
		this.marks?.restore(this.id, this.items);
		if (before.some(({ marks }) => marks.length)) this.marks?.keep(this.id, this.items);
		const last = this.items.at(-1);
		if (isWaiting && last?.role === "user") last.status = "waiting";
	}

	async send(content) {
		await this.#reading;
		await Promise.race([this.#catchUp(), aMoment()]);
		if (this.isClosed || this.state === "unread") return false;
		if (this.isBusy) return this.say(content);
		this.items.push(questionOf(content));
		void this.answer();
		return true;
	}

	async #catchUp() {
		if (!this.isRunning) await this.#answering;
		await this.lookAgain();
	}

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

	async #sayAlone(message, content) {
		await this.#answering;
		const waits = !this.isClosed && await this.server.unqueue(this.id, message).then(() => true, () => false);
		if (!waits) return true;
		await this.load();
		return !this.isClosed && !this.problem && this.send(content);
	}

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

	#mark(item, told) {
		const question = this.items.findLast(({ role }) => role === "user");
		const isOfIt = question && isOfQuestion(question.text, told);
		addMark((isOfIt ? question : item).marks, told);
		this.trigger("marked", isOfIt ? question : item);
	}

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

	#unasked(item) {
		const place = this.items.indexOf(item);
		const question = this.items[place - 1];
		this.items.splice(place, 1);
		if (question?.role !== "user") return;
		question.marks.push(...item.marks);
		if (this.isAway && (this.problem?.code === "away" || question.status !== "again")) question.status = "waiting";
	}

	goOn() {
		const last = this.items.at(-1);
		if (last?.status !== "waiting" || !this.model || this.isAway || (this.state !== "new" && this.state !== "idle")) return;
		last.status = "again";
		void this.answer();
	}

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

	#note(item, kept, asked) {
		Object.assign(item, { id: kept.id, steps: kept.steps, between: kept.between, at: kept.at });
		const question = this.items[this.items.indexOf(item) - 1];
		if (question?.role === "user" && asked?.role === "user" && question.text === asked.text) Object.assign(question, { id: asked.id, recalled: asked.recalled });
		this.marks?.keep(this.id, this.items);
	}

	async stop() {
		const stopping = this.#stopping;
		// The connection is closed in any case, also where elbowroom does not take the word.
		if (this.isKept) await Promise.race([this.server.cancel(this.id).catch(() => {}), aMoment()]);
		stopping?.abort();
	}

	async retry() {
		if (this.isBusy) return;
		const last = this.items.findLastIndex(({ role }) => role === "user");
		if (last < 0) return;
		this.items.length = last + 1;
		await this.answer();
	}

	edit(item, content) {
		const place = this.items.indexOf(item);
		if (this.isBusy || this.isClosed || place < 0) return false;
		this.items.splice(place, Infinity, questionOf(content));
		void this.answer();
		return true;
	}

	async compact(focus) {
		return this.#byHand("Compacting…", () => this.server.compact(this.id, focus ? { focus } : {}));
	}

	async undo() {
		return this.#byHand("Taking the compaction back…", () => this.server.undo(this.id));
	}

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

	#take(row) {
		this.title = row.title;
		this.context = row.context;
		this.compactions = row.compactions;
		this.worksAhead = row.works_ahead;
		this.version = versionOf(row);
		if (this.state !== "unread") this.#now(row.status === "running" ? "busy" : "read");
		this.trigger("context", row.context);
	}

	#failed(error) {
		this.problem = error instanceof ServerError ? error : new ServerError(errorWords(error), 0);
	}

	missed(error) {
		this.#failed(error);
		this.changed("state");
		this.#schedule();
	}

	async #rows() {
		const rows = [];
		let after;
		for (let pages = 0; pages < MOST_PAGES; pages++) {
			const page = await this.server.messages(this.id, { limit: PAGE, ...(after ? { after } : {}) });
			rows.push(...page.data);
			if (!page.has_more || !page.next) break;
			after = page.next;
		}
		return rows;
	}

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

	async #lookForIt() {
		const isBack = await this.server.health().then(() => true, () => false);
		if (this.isClosed || !isBack) return;
		this.trigger("back");
		if (this.isKept) await this.load();
		else this.problem = null;
		this.goOn();
	}

	async #lookAtIt() {
		const ran = this.state === "elsewhere";
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

function commandIn(text) {
	const [, typed = "", rest = ""] = /^\/(\w+)(?:\s+([^]*))?$/.exec(text.trim()) ?? [];
	const name = typed.toLowerCase();
	return name === "compact" || name === "vault" || (name === "new" && !rest) ? { name, rest } : null;
}

function questionOf(content) {
	const item = itemOf("user", textOf({ content }));
	if (typeof content !== "string") item.sent = { role: "user", content };
	return item;
}

function aMoment() {
	return new Promise((done) => { window.setTimeout(done, MOMENT_MS); });
}

function newName() {
	return `obsidian-${crypto.randomUUID()}`;
}

function versionOf({ updated, usage }) {
	return JSON.stringify([updated, usage]);
}

// view/gauge.js

// How full a window is: a bar with marks where the older part is summarised and where an answer is stopped.

function inThousands(value) {
	return value.toLocaleString("en-GB");
}

function percent(share) {
	return `${Math.round(share * 100)} %`;
}

function fillOf(context) {
	if (!context || !(context.window > 0)) return { share: 0, state: "unknown", words: "Window not known yet" };
	const { tokens, window, trigger, stop_at: stopAt } = context;
	const state = stopAt && tokens >= stopAt ? "full" : trigger && tokens >= trigger ? "near" : "calm";
	const words = `${percent(tokens / window)} · ${inThousands(tokens)} of ${inThousands(window)} tokens`;
	return { share: Math.min(1, tokens / window), state, words };
}

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
	origin: "",
	user: "",
	agent: "",
	noticesAsPopups: true,
	noteContext: "none",
	promptFolder: "Prompts",
	seen: {},
});

function preferencesFrom(data) {
	const kept = isObject(data) ? data : {};
	const same = Object.entries(DEFAULTS).filter(([key, value]) => typeof kept[key] === typeof value && isObject(kept[key]) === isObject(value));
	const preferences = ({ ...kept, ...DEFAULTS, ...Object.fromEntries(same.map(([key]) => [key, kept[key]])) });
	if (!["none", "selection", "note"].includes(preferences.noteContext)) preferences.noteContext = DEFAULTS.noteContext;
	return preferences;
}

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

function originOf(typed) {
	const address = baseAddress(typed);
	return address ? new URL(address).origin : "";
}

function tokenOf(app, preferences) {
	return originOf(preferences.address) === preferences.origin ? keptToken(app, preferences) : "";
}

function keptToken(app, { secret, token }) {
	return (secret && app.secretStorage?.getSecret(secret)) || token;
}

function moveToken(app, preferences) {
	const { secret, token, origin } = preferences;
	const isBound = origin !== "" || !keptToken(app, preferences);
	if (!isBound) preferences.origin = originOf(preferences.address);
	if (!token || !app.secretStorage) return !isBound;
	if (secret && app.secretStorage.getSecret(secret)) preferences.token = "";
	else storeToken(app, preferences, token);
	return true;
}

function storeToken(app, preferences, token) {
	if (!app.secretStorage) {
		preferences.token = token;
		return;
	}
	app.secretStorage.setSecret(SECRET, token); // never over a secret that the person chose: others may use it
	preferences.secret = SECRET;
	preferences.token = "";
}

function keepToken(app, preferences, token) {
	storeToken(app, preferences, token);
	preferences.origin = originOf(preferences.address);
}

// notes/safe_markdown.js

// What a model writes is shown as Markdown, but asks no other server for anything and runs nothing.

const JOINER = "\u2060"; // takes no place on the screen
const FENCE = /^((?:[ \t]|>|[-*+][ \t]|\d+[.)][ \t]|\[\^[^\]\n]*\]:)*(?:`{3,}|~{3,})[ \t]*)([^\s`]+)([^\n`]*)$/gm;
const RUN_IN_LINE = /`(?=\s*(?:\$?=|jsx-|[A-Z]+\[))/g; // by plugins that read code in a line, such as Dataview
const RUN_BY_TEMPLATES = /<(?=%[-_]?\s*[*~]?\+)/g;
const LOADED_BY_FORMULAS = /\\(?=style|href|class|cssId|bbox|mmlToken|require|csname)/g;
const RUN_BY_LINKS = /(\]\(\s*<?|^\s*\[[^\]\n]+\]:\s*<?|<)([a-z][a-z0-9+.-]*:)/gim;
const LINKS = ["http:", "https:", "mailto:"];
const LANGUAGES = new Set(("asm bash bat bibtex c c++ clojure cmake conf cpp cs csharp css csv dart diff docker dockerfile elixir erlang fortran fsharp gherkin go graphql groovy h haskell html http ini "
	+ "java javascript jinja js json json5 jsonc jsx julia kotlin latex less lisp log lua makefile markdown matlab md nginx nix objectivec ocaml pascal perl php plaintext powershell properties protobuf ps1 "
	+ "py python r regex rs ruby rust sass scala scheme scss sh shell sql svg swift tex text toml ts tsx txt typescript vb vim wasm xml yaml yml zig zsh").split(" "));

function safeMarkdown(text) {
	const lines = text.replace(/\r\n?/g, "\n");
	const parts = /^\s*---|\$\$|%%/.test(lines) ? [{ text: lines, isCode: false }] : partsOf(lines); // properties, formulas and comments may hide where a block ends
	const safe = parts.map((part) => (part.isCode ? part.text : defused(part.text))).join("\n");
	return safe.replace(RUN_BY_TEMPLATES, `<${JOINER}`).replace(FENCE, (line, before, language) => (LANGUAGES.has(language.toLowerCase()) ? line : before));
}

function harmless(text) {
	return safeMarkdown(text).replace(/<(?=%)/g, `<${JOINER}`).replace(RUN_BY_LINKS, (link, before, scheme) => (LINKS.includes(scheme.toLowerCase()) ? link : `${before}${JOINER}${scheme}`));
}

function riskyLines(text) {
	const safe = harmless(text).split("\n");
	return text.replace(/\r\n?/g, "\n").split("\n").filter((line, index) => line !== safe[index]);
}

function settledEnd(text) {
	if (/^\s*---|\$\$|%%/.test(text)) return 0; // properties, formulas and comments may go over paragraphs
	let [end, place, isCode] = [0, 0, false];
	for (const line of text.slice(0, text.lastIndexOf("\n") + 1).split("\n").slice(0, -1)) {
		place += line.length + 1;
		if (/^[\s>*+\-\d.)]*(?:`{3}|~{3})/.test(line)) isCode = !isCode;
		else if (!isCode && !line.trim()) end = place;
	}
	return end;
}

function defused(text) {
	return text.replace(/<(?=[a-z/!?%])/gi, `<${JOINER}`).replace(/!\[/g, `!${JOINER}[`).replace(RUN_IN_LINE, `\`${JOINER}`).replace(LOADED_BY_FORMULAS, `\\${JOINER}`);
}

function followLinks(app, element) {
	const follow = (event) => {
		const link = (event.target).closest("a");
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
	for (const kind of (["click", "auxclick"])) element.addEventListener(kind, follow, true);
}

function partsOf(text) {
	const parts = [];
	let lines = [];
	let fence = "";
	const finish = (isCode) => {
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

	async* rows() {
		const { at, messages_removed: removed } = this.compaction;
		let left = removed ?? Infinity;
		let after = null;
		do {
			const page = (await this.chat.server.messages(this.chat.id, { limit: 200, ...(after ? { after } : {}) }));
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

	end(after = 0) {
		const notice = this.#open;
		this.#open = null;
		if (notice) window.setTimeout(() => notice.hide(), after);
	}
}

// notes/prompts.js

// A person's own prompts: the notes of one folder, offered behind a slash in the chat and as commands.

const PROPERTIES = /^---\n[^]*?\n---\n*/;

function promptNotes({ app, preferences }) {
	const folder = preferences.promptFolder.trim().replace(/^\/+|\/+$/g, "");
	if (!folder) return [];
	return app.vault.getMarkdownFiles().filter(({ path }) => path.startsWith(`${folder}/`)).sort((one, other) => one.path.localeCompare(other.path));
}

async function promptText(app, file) {
	return (await app.vault.cachedRead(file)).replace(/\r\n?/g, "\n").replace(PROPERTIES, "").trim();
}

function addPromptCommands(plugin) {
	let known = new Map();
	const update = () => {
		const now = new Map(promptNotes(plugin).map((file) => [file.path, `prompt-${file.path.replace(/\.md$/, "")}`]));
		for (const [path, id] of known) if (!now.has(path)) plugin.removeCommand(id);
		for (const [path, id] of now) {
			if (!known.has(path)) plugin.addCommand({ id, name: `Prompt: ${path.split("/").at(-1)?.replace(/\.md$/, "") ?? path}`, callback: () => void run(plugin, path) });
		}
		known = now;
	};
	const soon = debounce(update, 500, true);
	plugin.app.workspace.onLayoutReady(update);
	const { vault } = plugin.app;
	for (const event of (["create", "delete", "rename"])) plugin.registerEvent(vault.on((event), soon));
	plugin.registerEvent(plugin.events.on("settings", soon));
}

async function run(plugin, path) {
	const file = plugin.app.vault.getAbstractFileByPath(path);
	if (!(file instanceof TFile)) return;
	const selected = await currentAttachment(plugin.app, "selection");
	const view = await plugin.activateView();
	view?.composer?.write(await promptText(plugin.app, file));
	view?.ask(selected ? [selected] : []);
}

// notes/saving.js

// Puts what a model wrote into notes: as it was shown, and nothing that loads or runs without having been asked for.

const UNNAMED = "Answer";
const LONGEST_NAME = 60;
const MOST_LINES_SHOWN = 20;

async function writable(app, text, before = "") {
	const known = new Set(before.split(/\r\n?|\n/));
	const risky = riskyLines(text).filter((line) => !known.has(line));
	return risky.length ? new Promise((resolve) => new RiskModal(app, text, risky, resolve).open()) : text;
}

class RiskModal extends Modal {
	constructor(app, text, risky, answer) {
		super(app);
		this.text = text;
		this.risky = risky;
		this.answer = answer;
		this.chosen = null;
	}

	onOpen() {
		this.setTitle("This text would do more than stand there");
		this.contentEl.createEl("p", { text: "In a note, these lines may load something from elsewhere, show another note, or run code of a plugin:" });
		const { risky } = this;
		const left = risky.length - MOST_LINES_SHOWN;
		this.contentEl.createEl("pre", { cls: "elbowroom-raw", text: [...risky.slice(0, MOST_LINES_SHOWN), ...(left > 0 ? [`and ${left} more lines`] : [])].join("\n") });
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Write it as it is").setWarning().onClick(() => this.choose(this.text)))
			.addButton((button) => button.setButtonText("Write it harmless").setCta().onClick(() => this.choose(harmless(this.text))));
	}

	choose(text) {
		this.chosen = text;
		this.close();
	}

	onClose() {
		this.contentEl.empty();
		this.answer(this.chosen);
	}
}

async function insertInNote(app, text) {
	const note = lastNote(app);
	if (!note) return void new Notice("Open a note first, in which it can be inserted.");
	const written = await writable(app, text);
	if (written === null) return undefined;
	note.editor.setCursor(note.editor.getCursor("to")); // behind what is selected, not in its place
	note.editor.replaceSelection(written);
	return void new Notice(`Inserted in ${note.file?.basename ?? "the note"}.`);
}

async function saveAsNote(app, text, title = "") {
	const written = await writable(app, text);
	if (written === null) return;
	const from = app.workspace.getActiveFile()?.path ?? "";
	const name = nameFor(title || text);
	const folder = app.fileManager.getNewFileParent(from, `${name}.md`).path;
	try {
		const file = await app.vault.create(freePath(app, folder, name), written);
		await app.workspace.openLinkText(file.path, "", "tab");
	} catch (error) {
		new Notice(`The note could not be saved. ${errorWords(error)}`);
	}
}

function asMarkdown({ items, model }) {
	const parts = items.filter(({ role, text }) => role !== "system" && text).map(({ role, text }) => {
		const { question, attachments } = role === "user" ? withoutAttachments(text) : { question: text, attachments: [] };
		const links = [...new Set(attachments.map(({ path }) => path).filter(Boolean))].map((path) => `[[${path.replace(/\.md$/, "")}]]`);
		return [`## ${role === "user" ? "You" : model || UNNAMED}`, ...(links.length ? [`With ${links.join(", ")}`] : []), question].join("\n\n");
	});
	return `${parts.join("\n\n")}\n`;
}

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

// notes/vault_changes.js

// What agents have changed in the notes: each change with links to its notes, and a way to take it back.

const WRITES = new Set(["vault_create", "vault_append", "vault_patch", "vault_rename", "vault_delete"]);
const READS = new Set(["vault_read", "vault_outline", "vault_search"]);
const MOST_SOURCES = 12;
const AROUND_SECONDS = 1; // both times are of the clock of elbowroom

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

function showSources(message, parent) {
	const { vault } = message.view.app;
	const found = message.item.steps.flatMap((step) => (READS.has(step.name) && step.state === "completed" ? sourcesOf(step) : []));
	const notes = [...new Set(found)].filter((path) => vault.getAbstractFileByPath(path)).slice(0, MOST_SOURCES);
	parent.empty();
	if (notes.length) parent.createSpan({ cls: "elbowroom-quiet", text: "From" });
	for (const path of notes) message.noteLink(parent.createSpan({ cls: "elbowroom-chip" }), path, path.split("/").at(-1)?.replace(/\.md$/, "") ?? path);
}

function sourcesOf(step) {
	const { path } = argumentsOf(step);
	const read = typeof path === "string" && path ? [path, `${path}.md`] : [];
	return [...read, ...[...step.result.matchAll(/^(?:[-*] )?(\S.*?\.md)(?=[:\s]|$)/gm)].map(([, found = ""]) => found)];
}

function isChange(step) {
	return WRITES.has(step.name) && step.state === "completed";
}

function pathsOf(step) {
	const { path, new_path: moved } = argumentsOf(step);
	return [path, moved].filter((each) => typeof each === "string").map(bare);
}

function isOf(paths, { what, notes }) {
	return notes.some((note) => paths.has(bare(note))) || [...paths].some((path) => bare(what).endsWith(` ${path}`));
}

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

async function saveNotes(app) {
	for (const { view } of app.workspace.getLeavesOfType("markdown")) if (view instanceof MarkdownView) await view.save();
}

// view/message_view.js

// One message of a conversation, and what can be done with it.

const GO_ON = "Go on exactly where you stopped.";
const DRAW_MS = 200;

function iconButton(parent, icon, name, act) {
	const button = parent.createEl("button", { cls: "clickable-icon", attr: { "aria-label": name, type: "button" } });
	setIcon(button, icon);
	button.addEventListener("click", () => void act());
	return button;
}

class MessageView extends Component {
	#drawn = new Component();
	#shown = { text: null, isStreaming: false, steps: null, marks: "" };
	#tail = new Component();
	#settled = 0;

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
		this.body = this.element.createDiv({ cls: "elbowroom-text", attr: { dir: "auto" } });
		this.marks = this.element.createDiv({ cls: "elbowroom-marks" });
		this.sources = this.element.createDiv({ cls: "elbowroom-sources" });
		this.changes = this.element.createDiv();
		this.actions = this.element.createDiv({ cls: "elbowroom-actions" });
		this.addActions();
	}

	get #marksNow() {
		const { marks, status, between, recalled } = this.item;
		return JSON.stringify([marks, status, between, recalled.length]);
	}

	get hasNewMarks() {
		return this.#shown.marks !== this.#marksNow;
	}

	get isStale() {
		const { item } = this;
		const { text, isStreaming, steps } = this.#shown;
		return text !== item.text || isStreaming !== (item.status === "streaming") || steps !== item.steps || this.thoughtText.textContent !== item.thought || this.hasNewMarks;
	}

	async draw() {
		const { item } = this;
		const before = this.#shown;
		const now = this.#shown = { text: item.text, isStreaming: item.status === "streaming", steps: item.steps, marks: this.#marksNow };
		this.element.setAttr("aria-busy", String(now.isStreaming));
		this.thought.toggle(item.thought !== "");
		if (this.thoughtText.textContent !== item.thought) this.thoughtText.setText(item.thought);
		if (now.marks !== before.marks) this.showMarks();
		if (now.steps !== before.steps) {
			this.steps.replaceChildren(...item.steps.map((step) => this.stepRow(step)));
			showSources(this, this.sources);
			void showChanges(this, this.changes);
		}
		if (now.text !== before.text || now.isStreaming !== before.isStreaming) await this.showText(now.isStreaming);
	}

	async showText(isStreaming) {
		const { question, attachments } = this.item.role === "user" ? withoutAttachments(this.item.text) : { question: this.item.text, attachments: [] };
		if (!isStreaming) {
			const next = createDiv();
			for (const { path, kind } of attachments) this.noteLink(next.createSpan({ cls: "elbowroom-chip" }), path, kind === "selected_text" ? `Selection of ${path}` : path);
			const whole = await this.render(question, next.createDiv({ cls: "markdown-rendered" }));
			this.body.replaceChildren(...next.childNodes);
			for (const old of [this.#drawn, this.#tail]) this.removeChild(old);
			this.#drawn = whole;
			this.#settled = 0;
			return;
		}
		const settled = settledEnd(question);
		if (settled > this.#settled) {
			const part = createDiv({ cls: "markdown-rendered" });
			this.#drawn.addChild(await this.render(question.slice(this.#settled, settled), part));
			if (this.#settled) this.body.lastElementChild?.replaceWith(part);
			else this.body.replaceChildren(part);
			this.body.createDiv();
			this.#settled = settled;
		}
		const tail = createDiv({ cls: "markdown-rendered" });
		const drawn = await this.render(question.slice(this.#settled), tail);
		if (this.#settled) this.body.lastElementChild?.replaceWith(tail);
		else this.body.replaceChildren(tail);
		this.removeChild(this.#tail);
		this.#tail = drawn;
	}

	async render(text, parent) {
		const drawn = this.addChild(new Component());
		try {
			// For no note: other plugins would take its place for that of the text, and may change what stands there.
			await MarkdownRenderer.render(this.view.app, safeMarkdown(text), parent, "", drawn);
		} catch {
			parent.setText(text); // another plugin has failed at it
		}
		return drawn;
	}

	showMarks() {
		const { status, between, recalled, marks } = this.item;
		this.marks.empty();
		for (const said of between) this.marks.createDiv({ cls: "elbowroom-between", text: `Taken in: ${said}`, attr: { dir: "auto" } });
		if (recalled.length) {
			const row = this.marks.createEl("details", { cls: "elbowroom-step" });
			row.createEl("summary", { text: `Came back with it: ${recalled.length}` });
			for (const { role, text } of recalled) row.createEl("pre", { text: `${role}: ${text}` });
		}
		for (const mark of marks.filter(helpFor)) this.lossRow(mark);
		const others = marks.filter((mark) => !helpFor(mark));
		if (others.length) {
			const row = this.marks.createEl("details", { cls: "elbowroom-quiet" });
			row.createEl("summary", { text: `What happened: ${others.length}` });
			for (const { text } of others) row.createDiv({ cls: "elbowroom-quiet", text });
		}
		if (status === "interrupted") this.marks.createDiv({ cls: "elbowroom-problem", text: "Interrupted: what was said until then is kept." });
		if (status === "waiting") this.marks.createDiv({ cls: "elbowroom-problem", text: "It waits for elbowroom, and is asked as soon as that is back." });
	}

	lossRow(mark) {
		const row = this.marks.createDiv({ cls: "elbowroom-mark", attr: { "data-kind": mark.kind } });
		setIcon(row.createSpan(), "triangle-alert");
		const words = row.createDiv();
		words.createDiv({ text: mark.text, attr: { dir: "auto" } });
		words.createDiv({ cls: "elbowroom-remedy", text: helpFor(mark) });
		if (mark.kind !== "length" && mark.kind !== "cut") return;
		const button = row.createEl("button", { cls: "mod-when-last", text: "Go on", attr: { type: "button" } });
		button.addEventListener("click", () => void this.view.chat.send(GO_ON));
	}

	addActions() {
		iconButton(this.actions, "copy", "Copy", () => this.copy());
		if (this.item.role === "user") {
			iconButton(this.actions, "pencil", "Edit and ask again", () => this.view.composer?.edit(this.item)).addClass("mod-when-idle");
		} else {
			iconButton(this.actions, "text-cursor-input", "Insert at the cursor", () => insertInNote(this.view.app, this.item.text));
			iconButton(this.actions, "file-plus", "Save as a note", () => saveAsNote(this.view.app, this.item.text));
		}
		iconButton(this.actions, "refresh-cw", this.item.role === "user" ? "Ask again" : "Try again", () => this.view.chat.retry()).addClass("mod-when-last");
	}

	async copy() {
		await navigator.clipboard.writeText(this.item.text);
		new Notice("Copied.");
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

// view/suggestions.js

// What is offered while a person writes: notes and folders behind @ and [[, prompts and commands behind a slash.

const MOST_OFFERS = 8;
const TRIGGER = /(?:^|\s)(@)([^\s@[\]]*)$|(\[\[)([^\]\n]*)$/;

class Suggestions {
	#offers = [];
	#chosen = 0;
	#from = 0;

	constructor(app, input, parent, able) {
		this.app = app;
		this.input = input;
		this.able = able;
		this.list = parent.createEl("ul", { cls: "elbowroom-offers", attr: { role: "listbox", "aria-label": "Suggestions", id: `elbowroom-offers-${crypto.randomUUID()}` } });
		this.list.hide();
		input.setAttrs({ "aria-controls": this.list.id, "aria-autocomplete": "list" });
		input.addEventListener("input", () => this.update());
		input.addEventListener("blur", () => this.close());
	}

	get isOpen() {
		return this.#offers.length > 0;
	}

	update() {
		const before = this.input.value.slice(0, this.input.selectionStart);
		const command = /^\/(\S*)$/.exec(before);
		const [, at, named, brackets, linked] = TRIGGER.exec(before) ?? [];
		const sign = command ? "/" : at ?? brackets;
		const typed = (command?.[1] ?? named ?? linked ?? "").toLowerCase();
		this.#from = before.length - typed.length - (sign?.length ?? 0);
		this.#offers = sign === undefined ? [] : command ? this.able.prompts().filter(({ name }) => name.toLowerCase() !== `/${typed}` && name.toLowerCase().slice(1).includes(typed)).slice(0, MOST_OFFERS) : this.notes(typed);
		this.#chosen = 0;
		this.draw();
	}

	notes(typed) {
		const all = this.app.vault.getAllLoadedFiles().filter((each) => (each instanceof TFile ? each.extension === "md" : each.path !== "/"));
		const fitting = all.flatMap((each) => {
			const name = each.name.toLowerCase();
			const rank = name.startsWith(typed) ? 0 : name.includes(typed) ? 1 : each.path.toLowerCase().includes(typed) ? 2 : 3;
			return rank < 3 ? [{ each, rank, age: each instanceof TFile ? -each.stat.mtime : 0 }] : [];
		});
		fitting.sort((one, other) => one.rank - other.rank || one.age - other.age);
		return fitting.slice(0, MOST_OFFERS).map(({ each }) => ({
			name: each instanceof TFile ? each.basename : `${each.name}/`, more: each.parent && each.parent.path !== "/" ? each.parent.path : "",
			choose: () => {
				if (!(each instanceof TFile || each instanceof TFolder)) return;
				this.insert(each instanceof TFile ? `[[${each.basename}]] ` : `${each.path}/ `);
				this.able.mention(each);
			},
		}));
	}

	draw() {
		this.list.toggle(this.isOpen);
		this.list.replaceChildren(...this.#offers.map(({ name, more }, index) => {
			const row = createEl("li", { cls: "elbowroom-offer", attr: { role: "option", id: `${this.list.id}-${index}`, "aria-selected": String(index === this.#chosen) } });
			row.createSpan({ text: name });
			if (more) row.createSpan({ cls: "elbowroom-quiet", text: more });
			row.addEventListener("mousedown", (event) => {
				event.preventDefault();
				this.choose(index);
			});
			return row;
		}));
		if (this.isOpen) this.input.setAttr("aria-activedescendant", `${this.list.id}-${this.#chosen}`);
		else this.input.removeAttribute("aria-activedescendant");
	}

	pressed(event) {
		if (!this.isOpen) return false;
		const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
		if (step) {
			this.#chosen = (this.#chosen + step + this.#offers.length) % this.#offers.length;
			this.draw();
		} else if (event.key === "Enter" || event.key === "Tab") this.choose(this.#chosen);
		else if (event.key === "Escape") this.close();
		else return false;
		event.preventDefault();
		event.stopPropagation();
		return true;
	}

	choose(index) {
		const offer = this.#offers[index];
		const { input } = this;
		const end = input.selectionStart;
		input.value = input.value.slice(0, this.#from) + input.value.slice(end);
		input.setSelectionRange(this.#from, this.#from);
		this.close();
		void offer?.choose();
	}

	insert(text) {
		this.input.setRangeText(text, this.input.selectionStart, this.input.selectionEnd, "end");
	}

	close() {
		this.#offers = [];
		this.draw();
	}
}

// view/composer.js

// Where a person writes: the text, what goes along with it and how many tokens that takes, and what waits.

const NOTHING = { text: "", attachments: [] };

class Composer {
	attachments = [];
	editing = null;
	#isChosen = false;
	#own = null;
	#shownChips = "";
	#isSending = false;
	#draft = NOTHING;

	constructor(view, parent) {
		this.view = view;
		this.element = parent.createDiv({ cls: "elbowroom-composer" });
		this.waiting = this.element.createDiv({ cls: "elbowroom-queue" });
		this.chips = this.element.createDiv({ cls: "elbowroom-chips" });
		this.sum = this.element.createDiv({ cls: "elbowroom-sum", attr: { role: "status" } });
		this.input = this.element.createEl("textarea", { cls: "elbowroom-input", attr: { "aria-label": "Message", rows: "3", placeholder: "Ask anything. @ or [[ brings a note along, / your prompts.", dir: "auto" } });
		this.suggestions = new Suggestions(view.app, this.input, this.element, { mention: (found) => void this.mention(found), prompts: () => this.prompts() });
		this.buttons = this.element.createDiv({ cls: "elbowroom-buttons" });
		iconButton(this.buttons, "paperclip", "Add the note at work", () => this.addCurrent());
		this.stopButton = iconButton(this.buttons, "square", "Stop", () => this.stop());
		this.sendButton = this.buttons.createEl("button", { cls: "mod-cta", text: "Send", attr: { type: "button" } });
		this.sendButton.addEventListener("click", () => void this.send());
		this.counting = new Counting(view.plugin.server, () => this.show());
		this.listen();
	}

	listen() {
		this.input.addEventListener("keydown", (event) => this.pressed(event));
		this.input.addEventListener("focus", () => void this.showByItself());
		this.input.addEventListener("paste", (event) => {
			const isImage = [...event.clipboardData?.files ?? []].some(({ type }) => type.startsWith("image/"));
			if (!isImage || event.clipboardData?.getData("text/plain")) return;
			event.preventDefault();
			void this.add(() => imagesIn(event.clipboardData));
		});
		this.element.addEventListener("dragover", (event) => event.preventDefault());
		this.element.addEventListener("drop", (event) => {
			event.preventDefault();
			void this.add(() => fromDrop(this.view.app, event.dataTransfer));
		});
	}

	pressed(event) {
		if (event.isComposing || this.suggestions.pressed(event)) return;
		if (event.key === "Enter" && !event.shiftKey && !Platform.isMobile) { // a phone has no other key for a new line
			event.preventDefault();
			void this.send();
		} else if (event.key === "Escape" && (this.view.chat.isRunning || this.editing)) {
			event.preventDefault();
			if (this.editing) this.letBe();
			else void this.view.chat.stop();
		}
	}

	async stop() {
		if (!Platform.isMobile) this.input.focus();
		await this.view.chat.stop();
	}

	async send() {
		const { chat } = this.view;
		const command = this.editing ? null : commandIn(this.input.value);
		if (command) return this.run(command);
		if (this.#isSending || !(this.input.value.trim() || this.attachments.length)) return undefined;
		this.#isSending = true;
		const own = await this.byItself();
		this.#isSending = false;
		const { editing, attachments: chosen } = this;
		const written = this.input.value;
		const question = written.trim();
		if (!editing) this.clear();
		try {
			const content = withAttachments(await readNow(this.view.app, own ? [own] : chosen), question);
			if (editing && !chat.edit(editing, content)) throw new Error("This cannot be asked now. Wait until the answer has ended, or copy what you wrote.");
			if (editing) return this.clear();
			if (await chat.send(content)) return undefined;
		} catch (error) {
			new Notice(errorWords(error));
			if (editing) return undefined;
		}
		this.write([written, this.input.value].filter(Boolean).join("\n\n"));
		this.attachments = [...new Set([...chosen, ...this.attachments])];
		return this.show();
	}

	async run({ name, rest }) {
		this.input.value = "";
		if (name === "new") this.view.begin();
		else if (name === "vault") {
			this.write(rest);
			if (await this.view.askVault() && rest) await this.send();
		} else if (!await this.view.chat.compact(rest)) {
			new Notice("A conversation can be compacted once it has an answer, and while none is being written.");
			this.write(`/compact ${rest}`.trim());
		}
	}

	write(text) {
		this.input.value = text;
		this.input.focus();
	}

	prompts() {
		const { app, plugin } = this.view;
		return [
			{ name: "/compact", more: "Summarise the older part now", choose: () => this.write("/compact ") },
			{ name: "/new", more: "Begin a new conversation", choose: () => this.view.begin() },
			{ name: "/vault", more: "Have an agent answer that looks into your notes", choose: () => this.view.askVault() },
			...promptNotes(plugin).map((file) => ({ name: `/${file.basename}`, more: "Prompt", choose: async () => this.write(await promptText(app, file)) })),
		];
	}

	async mention(found) {
		await this.add(async () => [found instanceof TFile ? await noteAttachment(this.view.app, found) : await folderAttachment(this.view.app, found)]);
	}

	clear() {
		const { text, attachments } = this.#draft;
		this.#draft = NOTHING;
		this.input.value = text;
		Object.assign(this, { attachments, editing: null });
		this.#isChosen = attachments.length > 0;
		this.#own = null;
		this.show();
		void this.showByItself();
	}

	edit(item) {
		const { attachments, question } = partsOfMessage(item);
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

	async byItself() {
		const what = this.view.plugin.preferences.noteContext;
		if (what === "none" || this.#isChosen || this.editing || this.attachments.length) return null;
		return currentAttachment(this.view.app, what).catch(() => null);
	}

	async showByItself() {
		const own = await this.byItself();
		if (own?.path === this.#own?.path && own?.text === this.#own?.text) return;
		this.#own = own;
		this.show();
		if (own) this.counting.soon(this.view.chat.model, [own]);
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
		this.#own = null;
		this.show();
		this.counting.soon(this.view.chat.model, this.attachments);
	}

	recount() {
		for (const attachment of this.going) attachment.tokens = null;
		if (this.going.length) this.counting.soon(this.view.chat.model, this.going);
		this.show();
	}

	get going() {
		return this.attachments.length || !this.#own ? this.attachments : [this.#own];
	}

	show() {
		const { chat } = this.view;
		const { isBusy } = chat;
		const chips = JSON.stringify(this.going.map(({ kind, path, tokens, text }) => [kind, path, tokens, text.length]));
		if (chips !== this.#shownChips) this.chips.replaceChildren(...this.going.map((attachment) => this.chip(attachment)));
		this.#shownChips = chips;
		this.sum.setText(this.sumWords());
		this.stopButton.toggle(isBusy);
		this.sendButton.setText(this.editing ? "Ask again" : isBusy ? "Say it meanwhile" : "Send");
		this.waiting.replaceChildren(...chat.queue.map((row) => this.waitingRow(row)), ...chat.dropped.map((row) => this.droppedRow(row)));
	}

	sumWords() {
		const counted = this.going.map(({ tokens }) => tokens);
		if (!counted.length || counted.includes(null)) return "";
		const sum = counted.reduce((all, tokens) => all + (tokens ?? 0), 0);
		const window = this.view.window;
		if (!window) return `${inThousands(sum)} tokens go along.`;
		const free = window - (this.view.chat.context?.tokens ?? 0);
		const words = `${inThousands(sum)} tokens go along, ${percent(sum / window)} of the window.`;
		return sum > free ? `${words} That is more than is free: older messages are compacted, and what is longest is shortened.` : words;
	}

	chip(attachment) {
		const { kind, path, tokens } = attachment;
		const name = (path.split("/").at(-1)?.replace(/\.md$/, "") || "Text") + (kind === "folder" ? "/" : "");
		const chip = createSpan({ cls: "elbowroom-chip", attr: { title: path } });
		chip.createSpan({ text: kind === "selected_text" ? `Selection of ${name}` : name });
		chip.createSpan({ cls: "elbowroom-quiet", text: tokens === null ? "…" : `${inThousands(tokens)} tokens` });
		iconButton(chip, "x", `Leave ${name} out`, () => {
			this.attachments = this.attachments.filter((each) => each !== attachment);
			this.#isChosen = true;
			this.#own = null;
			this.show();
			this.input.focus();
		});
		return chip;
	}

	waitingRow(row) {
		const element = createDiv({ cls: "elbowroom-waiting" });
		setIcon(element.createSpan(), "clock");
		element.createSpan({ text: textOf(row.message) });
		iconButton(element, "x", "Take it back", async () => {
			if (await this.view.chat.unsay(row.id)) this.takeBack(row);
		});
		return element;
	}

	droppedRow(row) {
		const element = createDiv({ cls: "elbowroom-waiting" });
		setIcon(element.createSpan(), "circle-slash");
		element.createSpan({ text: `Not said, since the answer was stopped: ${textOf(row.message)}` });
		iconButton(element, "undo-2", "Write it again", () => {
			const { chat } = this.view;
			chat.dropped = chat.dropped.filter(({ id }) => id !== row.id);
			this.takeBack(row);
			chat.changed("state");
		});
		return element;
	}

	takeBack({ message }) {
		const { attachments, question } = partsOfMessage({ text: textOf(message), sent: message });
		this.write([question, this.input.value].filter(Boolean).join("\n\n"));
		if (attachments.length) this.take(attachments);
	}
}

function partsOfMessage({ text, sent }) {
	if (!Array.isArray(sent?.content)) return withoutAttachments(text);
	const { attachments, question } = withoutAttachments(textOf({ content: sent.content.filter(({ type }) => type === "text") }));
	const images = sent.content.flatMap(({ image_url: image }) => (image ? [{ kind: ("image"), path: "Picture", text: image.url, tokens: null }] : []));
	return { attachments: [...attachments, ...images], question };
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

async function removeConversation(plugin, row) {
	const isSure = await new Promise((resolve) => new ConfirmModal(plugin.app, row, resolve).open());
	if (!isSure) return false;
	try {
		await plugin.server.cancel(row.id); // what is being written to it would keep it
		plugin.events.trigger("deleting", row.id);
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

function deviceName(app) {
	const kind = Platform.isIosApp ? "iOS" : Platform.isAndroidApp ? "Android" : Platform.isMacOS ? "macOS" : Platform.isWin ? "Windows" : "Linux";
	return `${app.vault.getName()} (Obsidian on ${kind})`;
}

// view/chat_view.js

// The view of a conversation: its head with agent and gauge, the messages, and the composer.

const VIEW_TYPE = "elbowroom-chat";
const NAME = "Elbowroom";
const NEAR_END = 80;
const SLICE_MS = 12; // so that keys and clicks wait for no long conversation

class ChatView extends ItemView {
	icon = "message-square-text";
	navigation = false;
	models = [];
	composer = null;
	log = null;
	problem = null;
	notice = null;
	fill = null;
	gauge = null;
	picker = null;
	#messages = new Map();
	#lines = new Map();
	#others = new Set();
	#heard = [];
	#conversation = "";
	#isDrawing = false;
	#all = false;
	#drawLater = null;

	constructor(leaf, plugin) {
		super(leaf);
		this.plugin = plugin;
		this.marks = new KeptMarks(this.app);
		this.chat = this.newChat({});
		this.notices = new CompactionNotices(plugin);
	}

	getViewType() {
		return VIEW_TYPE;
	}

	getDisplayText() {
		return this.chat.title ? `${NAME}: ${this.chat.title}` : NAME;
	}

	get window() {
		const model = this.models.find(({ id }) => id === this.chat.model);
		return this.chat.context?.window ?? (model?.loaded_context_length || model?.context_length || 0);
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
		this.use(this.chat);
		void this.readModels(); // Obsidian waits for its views, and elbowroom may be away
		return Promise.resolve();
	}

	addHead(head) {
		const row = head.createDiv({ cls: "elbowroom-bar" });
		this.picker = row.createEl("select", { cls: "dropdown", attr: { "aria-label": "Agent or model" } });
		this.picker.addEventListener("change", () => {
			Object.assign(this.chat, { model: this.picker?.value ?? "", isPicked: true });
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
		this.registerEvent(this.plugin.events.on("settings", () => void this.readModels()));
		this.registerEvent(this.plugin.events.on("unload", () => void this.onClose()));
		this.registerEvent(this.plugin.events.on("deleting", (...id) => this.forget(String(id[0]))));
		this.registerDomEvent(this.contentEl.win, "focus", () => void this.chat.lookAgain());
		this.registerEvent(this.app.workspace.on("active-leaf-change", (leaf) => {
			void this.composer?.showByItself();
			if (leaf !== this.leaf) return;
			this.tellStatus();
			void this.chat.lookAgain();
		}));
	}

	newChat(wanted) {
		return new Chat(this.plugin.server, { model: this.plugin.preferences.agent, ...wanted, marks: this.marks });
	}

	use(chat) {
		const before = this.chat;
		for (const ref of this.#heard) before.offref(ref);
		if (before !== chat && before.isPending) this.leaveRunning(before);
		else if (before !== chat) before.close();
		this.#others.delete(chat);
		this.chat = chat;
		this.#heard = [
			chat.on("changed", (...what) => this.draw(String(what[0]))),
			chat.on("notice", (...event) => this.notices.hear((event[0]))),
			chat.on("marked", () => this.draw("last")),
			chat.on("back", () => void this.readModels()),
			chat.on("context", () => this.showState()),
		];
		if (before !== chat && before.isAway && !chat.isAway) chat.missed(before.problem);
		this.draw("items");
	}

	leaveRunning(chat) {
		this.#others.add(chat);
		chat.on("back", () => void this.readModels());
		chat.on("ended", () => {
			if (chat.isPending || !this.#others.delete(chat)) return;
			chat.close();
			new Notice(chat.problem ? `${chat.title || "The other conversation"}: ${chat.problem.message}` : `The answer in ${chat.title ? `“${chat.title}”` : "the other conversation"} is there.`);
		});
	}

	forget(id) {
		this.marks.forget(id);
		for (const chat of this.#others) {
			if (chat.id !== id) continue;
			this.#others.delete(chat);
			chat.close();
		}
		if (this.chat.id !== id) return;
		this.chat.close();
		this.begin();
	}

	async readModels() {
		try {
			this.models = await this.plugin.server.models();
		} catch (error) {
			this.chat.missed(error);
		}
		const first = this.plugin.preferences.agent || this.models[0]?.id || "";
		const isUnknown = !this.chat.model;
		for (const chat of [this.chat, ...this.#others]) {
			chat.model ||= first;
			chat.goOn();
		}
		if (isUnknown) this.composer?.recount();
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
		const { isPicked, model } = this.chat;
		const chat = this.newChat({ model: (!isPicked && this.plugin.preferences.agent) || model || this.models[0]?.id || "" });
		chat.isPicked = isPicked;
		this.use(chat);
		this.letBe();
		this.composer?.input.focus();
	}

	async askVault() {
		this.composer?.input.focus();
		try {
			const agent = (await this.plugin.server.agents()).find(({ enabled, tools }) => enabled && tools.some((tool) => tool === "vault" || tool === "vault.search"));
			if (!agent) throw new Error("No agent looks into your notes yet. Give one the tools of the vault on elbowroom's page, under Agents.");
			Object.assign(this.chat, { model: agent.id, isPicked: true });
			this.composer?.recount();
			this.draw("state");
			return true;
		} catch (error) {
			new Notice(errorWords(error));
			return false;
		}
	}

	async show(id) {
		if (id === this.chat.id) return;
		this.letBe();
		const running = [...this.#others].find((chat) => chat.id === id);
		this.use(running ?? this.newChat({ id, model: this.chat.model }));
		if (!running) await this.chat.load();
	}

	letBe() {
		if (this.composer?.editing) this.composer.clear();
	}

	getState() {
		return this.#conversation ? { conversation: this.#conversation } : {};
	}

	async setState(state, result) {
		const { conversation } = (state ?? {});
		if (typeof conversation === "string") void this.show(conversation);
		await super.setState(state, result);
	}

	keepState() {
		const { chat } = this;
		const now = chat.isKept && !chat.isClosed ? chat.id : "";
		if (now === this.#conversation) return;
		this.#conversation = now;
		void this.app.workspace.requestSaveLayout();
	}

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
		menu.addItem((item) => item.setTitle("Save as a note").setIcon("file-plus").setDisabled(!chat.items.length).onClick(() => void saveAsNote(this.app, asMarkdown(chat), chat.title)));
		menu.addItem((item) => item.setTitle("Delete").setIcon("trash-2").setWarning(true).setDisabled(!chat.isKept).onClick(async () => {
			await removeConversation(this.plugin, chat);
		}));
		const { left, bottom } = row.getBoundingClientRect();
		menu.showAtPosition({ x: left, y: bottom }, row.doc);
	}

	draw(what) {
		if (what !== "last") this.showState();
		if (what === "items") this.keepState();
		if (what === "state" || !this.log) return;
		this.#all ||= what === "items";
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
			const last = this.#messages.get((this.chat.items.at(-1)));
			if (this.#all || !last) await this.drawAll(log);
			else await this.drawViews(log, [last, ...this.#messages.values()].filter((view) => view === last || view.hasNewMarks));
		} finally {
			this.#isDrawing = false;
		}
		if (this.#all) this.drawSoon();
	}

	async drawAll(log) {
		this.#all = false;
		const { items } = this.chat;
		const isAtEnd = this.isAtEnd(log);
		const views = items.filter(({ role }) => role !== "system").map((item) => this.messageFor(item));
		const known = new Set(items);
		for (const [item, view] of this.#messages) if (!known.has(item)) {
			this.#messages.delete(item);
			this.removeChild(view);
			view.element.remove();
		}
		this.place(log, views);
		await this.drawViews(log, views.reverse(), isAtEnd);
	}

	async drawViews(log, views, isAtEnd = this.isAtEnd(log)) {
		let began = performance.now();
		for (const view of views) {
			if (!view.isStale) continue;
			await view.draw();
			if (performance.now() - began < SLICE_MS) continue;
			if (isAtEnd) log.scrollTop = log.scrollHeight;
			await new Promise((done) => { window.setTimeout(done); });
			if (this.log !== log) return;
			began = performance.now();
		}
		if (isAtEnd) log.scrollTop = log.scrollHeight;
	}

	isAtEnd(log) {
		return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
	}

	messageFor(item) {
		const found = this.#messages.get(item) ?? this.addChild(new MessageView(this, item));
		this.#messages.set(item, found);
		return found;
	}

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
			while (lines[0] && lines[0].at < view.item.at) wanted.push((lines.shift()).line);
			wanted.push(view.element);
		}
		wanted.push(...lines.map(({ line }) => line));
		const kept = new Set((wanted));
		for (const old of [...log.children]) if (!kept.has(old)) old.remove();
		wanted.forEach((element, index) => { if (log.children[index] !== element) log.insertBefore(element, log.children[index] ?? null); });
	}

	showState() {
		const { chat } = this;
		this.gauge?.show(chat.context);
		this.fill?.setText(fillOf(chat.context).words);
		this.composer?.show();
		if (!chat.isRunning) this.notices.end();
		const words = chat.notice || (chat.isRunning && !chat.items.at(-1)?.text ? "Waiting for the first word…" : chat.state === "elsewhere" ? "Another program's answer is being written." : "");
		if (this.notice && this.notice.textContent !== words) this.notice.setText(words);
		this.showProblem();
		this.log?.toggleClass("mod-busy", chat.isBusy);
		if (this.picker && this.picker.value !== chat.model) this.showPicker();
		this.tellStatus();
	}

	showProblem() {
		const { problem } = this;
		const found = this.chat.problem;
		const told = found ? `${found.message} ${this.chat.items.at(-1)?.status ?? ""}` : "";
		if (!problem || problem.dataset.told === told) return;
		problem.empty();
		problem.dataset.told = told;
		if (!found) return;
		setIcon(problem.createSpan(), "circle-alert");
		const waits = this.chat.items.at(-1)?.status === "waiting";
		problem.createSpan({ text: this.chat.isAway ? `${found.message} ${waits ? "Your question is asked as soon as elbowroom is back." : "It is looked for; what you write stays here."}` : found.message });
		if (found.needsPairing) problem.createEl("button", { text: "Pair" }).addEventListener("click", () => new PairingModal(this.plugin, () => void this.again()).open());
		else if (!this.chat.isAway) problem.createEl("button", { text: "Try again" }).addEventListener("click", () => this.tryAgain());
	}

	tryAgain() {
		const last = this.chat.items.at(-1);
		void (last?.role === "user" || last?.status === "interrupted" ? this.chat.retry() : this.again());
	}

	async again() {
		this.chat.problem = null;
		await this.readModels();
		if (!this.chat.isKept) return;
		for (const message of this.#messages.values()) this.removeChild(message);
		this.#messages.clear();
		await this.chat.load();
	}

	tellStatus() {
		this.plugin.events.trigger("context", { conversation: this.chat.id, context: this.chat.context, model: this.chat.model });
	}

	async onClose() {
		for (const chat of [this.chat, ...this.#others]) chat.close();
		if (this.#drawLater !== null) window.clearTimeout(this.#drawLater);
		this.log = null;
		this.notices.end();
		this.composer?.counting.stop();
		this.plugin.events.trigger("context", { conversation: "", context: null, model: "" });
		return Promise.resolve();
	}
}

// notes/diff.js

// What a text changes in another one, part by part, so that each part can be taken or left.

const MOST_STEPS = 4_000_000;
const PIECE = /[^\n]*?(?:[.!?…]+["'”’)\]]*(?:[ \t]+|(?=\n))|[。！？]+[」』”’]*|\n+|$)/g;

function partsOfChange(before, after) {
	const [old, fresh] = [piecesOf(before), piecesOf(after)];
	if (old.length * fresh.length > MOST_STEPS) return [{ before, after, isTaken: true }];
	const same = commonLengths(old, fresh);
	const width = fresh.length + 1;
	const parts = [];
	for (let one = 0, other = 0; one < old.length || other < fresh.length;) {
		const [gone, come] = [old[one], fresh[other]];
		if (gone !== undefined && gone === come) {
			add(parts, gone, gone, true);
			one += 1;
			other += 1;
		} else if (come !== undefined && (gone === undefined || (same[one * width + other + 1] ?? 0) > (same[(one + 1) * width + other] ?? 0))) {
			add(parts, "", come, false);
			other += 1;
		} else {
			add(parts, gone ?? "", "", false);
			one += 1;
		}
	}
	return parts;
}

function takenText(parts) {
	return parts.map(({ before, after, isTaken }) => (isTaken ? after : before)).join("");
}

function piecesOf(text) {
	return text.match(PIECE)?.filter(Boolean) ?? [];
}

function add(parts, before, after, isSame) {
	const last = parts.at(-1);
	if (last && (last.before === last.after) === isSame) {
		last.before += before;
		last.after += after;
	} else parts.push({ before, after, isTaken: true });
}

function commonLengths(old, fresh) {
	const width = fresh.length + 1;
	const lengths = new Uint16Array((old.length + 1) * width);
	for (let one = old.length - 1; one >= 0; one--) {
		for (let other = fresh.length - 1; other >= 0; other--) {
			const place = one * width + other;
			lengths[place] = old[one] === fresh[other] ? (lengths[place + width + 1] ?? 0) + 1 : Math.max(lengths[place + width] ?? 0, lengths[place + 1] ?? 0);
		}
	}
	return lengths;
}

// notes/preview_modal.js

// What a model makes of a text, shown while it streams; nothing changes in the note before it is accepted.

class PreviewModal extends Modal {
	#text = "";
	#parts = [];
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
		this.raw = this.contentEl.createEl("details", { cls: "elbowroom-raw", attr: { open: "" } });
		this.raw.createEl("summary", { text: "As it will be written" });
		this.written = this.raw.createEl("pre", { attr: { dir: "auto", tabindex: "0" } });
		this.list = this.contentEl.createEl("ul", { cls: "elbowroom-parts", attr: { "aria-label": "Changes" } });
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
		this.showParts([]);
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
			if (!this.place.isBefore && this.#text.trim()) this.showParts(partsOfChange(this.place.text, withEdgesOf(this.place.text, this.#text)));
		} catch (error) {
			if (signal !== this.#stopping?.signal) return;
			this.say(isAbort(error) ? "Stopped." : errorWords(error), false);
		}
		this.draw();
	}

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

	get result() {
		if (this.#parts.length) return takenText(this.#parts);
		return this.place.isBefore ? this.#text : withEdgesOf(this.place.text, this.#text);
	}

	showParts(parts) {
		const changes = parts.filter(({ before, after }) => before !== after);
		this.#parts = parts.length > 1 ? parts : [];
		this.list?.replaceChildren(...(this.#parts.length ? changes.map((part, index) => this.partRow(part, index + 1)) : []));
	}

	partRow(part, number) {
		const row = createEl("li", { cls: "elbowroom-part" });
		const label = row.createEl("label");
		const box = label.createEl("input", { type: "checkbox" });
		box.checked = true;
		label.createSpan({ text: `Accept change ${number}` });
		box.addEventListener("change", () => {
			part.isTaken = box.checked;
			this.draw();
		});
		if (part.before.trim()) row.createEl("del", { text: part.before.trim(), attr: { dir: "auto" } });
		if (part.after.trim()) row.createEl("ins", { text: part.after.trim(), attr: { dir: "auto" } });
		return row;
	}

	draw() {
		const { shown } = this;
		if (!shown) return;
		const text = this.#text ? this.result : "";
		this.written?.setText(text);
		this.#drawn.unload();
		const drawn = this.#drawn = new Component();
		drawn.load();
		const next = createDiv();
		void MarkdownRenderer.render(this.app, safeMarkdown(text), next, "", drawn).catch(() => next.setText(text)).then(() => {
			if (drawn === this.#drawn) shown.replaceChildren(...next.childNodes);
		});
	}

	async accept() {
		const text = await writable(this.app, this.result, this.place.isBefore ? "" : this.place.text);
		if (text === null) return;
		if (putInPlace(this.place, text)) {
			this.close();
			return;
		}
		const isHere = isOpen(this.place);
		this.inserter?.buttonEl.toggle(isHere);
		this.say(`The note has changed there meanwhile, so nothing was put in. Copy the text${isHere ? ", or insert it where the cursor stands" : ""}.`, false);
	}

	async insert() {
		const text = await writable(this.app, this.result.trim());
		if (text === null) return;
		const { editor } = this.place;
		const at = editor.getCursor("to");
		editor.transaction({ changes: [{ from: at, text }] });
		this.close();
	}

	async copy() {
		await navigator.clipboard.writeText(this.result);
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

async function ask(plugin, editor, info) {
	const attachment = { kind: "selected_text", path: info.file?.path ?? "", text: editor.getSelection(), tokens: null };
	const view = await plugin.activateView();
	view?.ask([attachment]);
}

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

function putInPlace(place, text) {
	const found = isOpen(place) ? (stands(place) ? place : movedTo(place)) : null;
	if (!found) return false;
	place.editor.transaction({ changes: [{ from: found.from, to: found.to, text }] });
	return true;
}

function withEdgesOf(other, text) {
	return other.slice(0, other.length - other.trimStart().length) + text.trim() + other.slice(other.trimEnd().length);
}

function isOpen({ info, file }) {
	return info.file === file;
}

function stands({ editor, from, to, text, isBefore }) {
	return (isBefore ? textBefore(editor, from) : editor.getRange(from, to)) === text;
}

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
		return this.groups().map(({ heading, rows }) => ({ type: "group", heading, items: rows }));
	}

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
			{ name: "Pairing", desc: this.pairingWords(), render: (setting) => this.showPairing(setting) },
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

	pairingWords() {
		const { preferences } = this.plugin;
		const isElsewhere = !this.isPaired && keptToken(this.app, preferences) !== "" && preferences.origin !== "";
		const words = "Gives this vault a token of its own, which you can take back on elbowroom's page.";
		return isElsewhere ? `This vault is paired with ${preferences.origin}, whose token is sent nowhere else: pair this address as well. ${words}` : words;
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
				name: "Folder of prompts", desc: "Each note in it is a prompt: type / in the chat, or run it as a command. Empty for none.",
				control: { type: "text", key: "promptFolder", placeholder: DEFAULTS.promptFolder },
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
		if (!key.startsWith(COMPACTION)) return preferences[(key)];
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

	redraw() {
		if (!this.containerEl.isConnected) return;
		if ("settingItems" in this) this.update();
		else (this).display();
	}

	showState(setting) {
		const again = () => void this.refresh();
		const { win } = setting.settingEl;
		win.addEventListener("focus", again);
		void this.refresh();
		setting.addButton((button) => button.setIcon("refresh-cw").setTooltip("Read them again").onClick(() => void this.refresh(true)));
		return () => win.removeEventListener("focus", again);
	}

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
				preferences.origin = originOf(preferences.address);
				await this.plugin.savePreferences();
				void this.refresh(true);
			}));
		} else {
			setting.addText((text) => {
				text.inputEl.setAttrs({ type: "password", "aria-label": "Token", autocomplete: "off" });
				text.setValue(preferences.token).inputEl.addEventListener("change", async () => {
					preferences.token = text.inputEl.value.trim();
					preferences.origin = originOf(preferences.address);
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

	showChecks() {
		this.#results?.replaceChildren(...this.checks.map(checkRow));
	}

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
		const keep = (changed) => void this.setControlValue(control.key, changed);
		if (control.type === "text") setting.addText((text) => {
			text.setValue(String(value)).setPlaceholder(control.placeholder ?? "").setDisabled(disabled).onChange(keep);
			text.inputEl.setAttr("aria-label", setting.nameEl.textContent ?? "");
		});
		else if (control.type === "dropdown") setting.addDropdown((dropdown) => dropdown.addOptions(control.options).setValue(String(value)).setDisabled(disabled).onChange(keep));
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
		this.addCommand({ id: "ask-vault", name: "Ask about your notes", callback: async () => (await this.activateView())?.askVault() });
		addEditorCommands(this);
		addPromptCommands(this);
		this.addFileMenu();
		this.addSettingTab(new ElbowroomSettingTab(this));
		this.addFill();
	}

	onunload() {
		this.events.trigger("unload");
	}

	async activateView() {
		const { workspace } = this.app;
		const leaf = workspace.getLeavesOfType(VIEW_TYPE)[0] ?? workspace.getRightLeaf(false);
		if (!leaf) return null;
		if (leaf.view.getViewType() !== VIEW_TYPE) await leaf.setViewState({ type: VIEW_TYPE, active: true });
		await workspace.revealLeaf(leaf);
		return leaf.view instanceof ChatView ? leaf.view : null;
	}

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

	addFileMenu() {
		this.registerEvent(this.app.workspace.on("file-menu", (menu, file) => {
			if (!(file instanceof TFile) || file.extension !== "md") return;
			menu.addItem((item) => item.setTitle("Add to the chat").setIcon("message-square-text").onClick(async () => {
				await (await this.activateView())?.composer?.addNote(file);
			}));
		}));
	}

	addFill() {
		const item = this.addStatusBarItem();
		item.addClass("elbowroom-status", "mod-clickable");
		item.setAttrs({ role: "button", tabindex: "0" });
		item.hide();
		this.registerDomEvent(item, "click", () => void this.activateView());
		this.registerDomEvent(item, "keydown", (event) => { if (event.key === "Enter" || event.key === " ") void this.activateView(); });
		this.registerEvent(this.events.on("context", (...told) => {
			const { context, model } = (told[0]);
			const { state, share, words } = fillOf(context);
			item.toggle(Boolean(model));
			item.dataset.state = state;
			item.setText(state === "unknown" ? model : `${model} ${Math.round(share * 100)} %`);
			item.setAttr("aria-label", `${model}. ${words}. Open the chat.`);
		}));
	}
}

module.exports = ElbowroomPlugin;
