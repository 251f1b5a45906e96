// The view of a conversation: its head with agent and gauge, the messages, and the composer.
import { ItemView, Menu, Notice, setIcon } from "obsidian";
import { Chat } from "../chat/chat.js";
import { KeptMarks } from "../chat/marks.js";
import { CompactionNotices, compactionLine } from "./compaction_view.js";
import { Composer } from "./composer.js";
import { ConversationList, RenameModal, removeConversation } from "./conversation_list.js";
import { Gauge, fillOf } from "./gauge.js";
import { DRAW_MS, MessageView, iconButton } from "./message_view.js";
import { asMarkdown, saveAsNote } from "../notes/saving.js";
import { errorWords } from "../server/server.js";
import { PairingModal } from "../settings/pairing.js";
import { followLinks } from "../notes/safe_markdown.js";

export const VIEW_TYPE = "elbowroom-chat";
const NAME = "Elbowroom";
const NEAR_END = 80;
const SLICE_MS = 12; // so that keys and clicks wait for no long conversation

export class ChatView extends ItemView {
	icon = "message-square-text";
	navigation = false;
	/** @type {import("../server/server.js").ModelRow[]} */
	models = [];
	/** @type {Composer | null} */
	composer = null;
	/** @type {HTMLElement | null} The messages, while the view is open. */
	log = null;
	/** @type {HTMLElement | null} What has failed. */
	problem = null;
	/** @type {HTMLElement | null} What happens beside the answer. */
	notice = null;
	/** @type {HTMLElement | null} How full the window is, in words. */
	fill = null;
	/** @type {Gauge | null} */
	gauge = null;
	/** @type {HTMLSelectElement | null} */
	picker = null;
	/** @type {Map<import("../chat/items.js").Item, MessageView>} */
	#messages = new Map();
	/** @type {Map<string, HTMLDetailsElement>} The lines of compactions, by all that they show. */
	#lines = new Map();
	/** @type {Set<Chat>} Conversations that are not shown, whose answers are still being written or waited for. */
	#others = new Set();
	/** @type {import("obsidian").EventRef[]} What is heard of the conversation that is shown. */
	#heard = [];
	/** What Obsidian keeps of the view: the conversation that it showed last. */
	#conversation = "";
	#isDrawing = false;
	/** Whether all messages are to be looked at by the next drawing, or the last alone. */
	#all = false;
	/** @type {number | null} */
	#drawLater = null;

	/**
	 * @param {import("obsidian").WorkspaceLeaf} leaf
	 * @param {import("../main.js").default} plugin
	 */
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

	/** The window of the chosen model in tokens; 0 where nobody knows. */
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

	/** @param {HTMLElement} head */
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

	/** @param {{ id?: string, model?: string }} wanted */
	newChat(wanted) {
		return new Chat(this.plugin.server, { model: this.plugin.preferences.agent, ...wanted, marks: this.marks });
	}

	/**
	 * Shows a conversation. One whose answer is being written, or waited for, goes on unseen; any other is let go.
	 * @param {Chat} chat
	 */
	use(chat) {
		const before = this.chat;
		for (const ref of this.#heard) before.offref(ref);
		if (before !== chat && before.isPending) this.leaveRunning(before);
		else if (before !== chat) before.close();
		this.#others.delete(chat);
		this.chat = chat;
		this.#heard = [
			chat.on("changed", (...what) => this.draw(String(what[0]))),
			chat.on("notice", (...event) => this.notices.hear(/** @type {import("../server/stream.js").StreamEvent} */ (event[0]))),
			chat.on("marked", () => this.draw("last")),
			chat.on("back", () => void this.readModels()),
			chat.on("context", () => this.showState()),
		];
		if (before !== chat && before.isAway && !chat.isAway) chat.missed(before.problem);
		this.draw("items");
	}

	/** @param {Chat} chat */
	leaveRunning(chat) {
		this.#others.add(chat);
		chat.on("back", () => void this.readModels());
		chat.on("ended", () => {
			if (chat.isPending || !this.#others.delete(chat)) return;
			chat.close();
			new Notice(chat.problem ? `${chat.title || "The other conversation"}: ${chat.problem.message}` : `The answer in ${chat.title ? `“${chat.title}”` : "the other conversation"} is there.`);
		});
	}

	/**
	 * Leaves a conversation that is deleted; its answer ends, so that nothing of it is kept anew.
	 * @param {string} id
	 */
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

	/** Reads which agents and models there are; the first of them answers where none was chosen. */
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

	/** Begins a new conversation, with the agent that was chosen by hand where there is one. */
	begin() {
		const { isPicked, model } = this.chat;
		const chat = this.newChat({ model: (!isPicked && this.plugin.preferences.agent) || model || this.models[0]?.id || "" });
		chat.isPicked = isPicked;
		this.use(chat);
		this.letBe();
		this.composer?.input.focus();
	}

	/** Chooses an agent that looks into the vault; says how to make one where there is none. Returns whether there is one. */
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

	/** @param {string} id */
	async show(id) {
		if (id === this.chat.id) return;
		this.letBe();
		const running = [...this.#others].find((chat) => chat.id === id);
		this.use(running ?? this.newChat({ id, model: this.chat.model }));
		if (!running) await this.chat.load();
	}

	/** Edits no message any more; what else was written stays. */
	letBe() {
		if (this.composer?.editing) this.composer.clear();
	}

	getState() {
		return this.#conversation ? { conversation: this.#conversation } : {};
	}

	/**
	 * @param {unknown} state
	 * @param {import("obsidian").ViewStateResult} result
	 */
	async setState(state, result) {
		const { conversation } = /** @type {{ conversation?: unknown }} */ (state ?? {});
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

	/**
	 * Takes what a question is about from elsewhere in Obsidian.
	 * @param {import("../notes/attachments.js").Attachment[]} attachments
	 */
	ask(attachments) {
		this.composer?.take(attachments);
		this.composer?.input.focus();
	}

	/** @param {HTMLElement} row */
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

	/**
	 * Draws what has changed; a message that is being written alone, and a few times a second at most.
	 * @param {string} what
	 */
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
			const last = this.#messages.get(/** @type {import("../chat/items.js").Item} */ (this.chat.items.at(-1)));
			if (this.#all || !last) await this.drawAll(log);
			else await this.drawViews(log, [last, ...this.#messages.values()].filter((view) => view === last || view.hasNewMarks));
		} finally {
			this.#isDrawing = false;
		}
		if (this.#all) this.drawSoon();
	}

	/** @param {HTMLElement} log */
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

	/**
	 * Draws messages, a few at a time.
	 * @param {HTMLElement} log
	 * @param {MessageView[]} views
	 * @param {boolean} [isAtEnd] Whether the end of the conversation stays in sight.
	 */
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

	/** @param {HTMLElement} log */
	isAtEnd(log) {
		return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
	}

	/** @param {import("../chat/items.js").Item} item */
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
		/** @type {HTMLElement[]} */
		const wanted = [];
		for (const view of views) {
			while (lines[0] && lines[0].at < view.item.at) wanted.push(/** @type {{ line: HTMLElement }} */ (lines.shift()).line);
			wanted.push(view.element);
		}
		wanted.push(...lines.map(({ line }) => line));
		const kept = new Set(/** @type {Element[]} */ (wanted));
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

	/** Has the question answered that has no whole answer; where there is none, what failed was to read or change something. */
	tryAgain() {
		const last = this.chat.items.at(-1);
		void (last?.role === "user" || last?.status === "interrupted" ? this.chat.retry() : this.again());
	}

	/** Reads and draws everything again, for a new token or address. */
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
