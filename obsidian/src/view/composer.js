// Where a person writes: the text, what goes along with it and how many tokens that takes, and what waits.
import { Notice, Platform, TFile, setIcon } from "obsidian";
import { Counting, currentAttachment, folderAttachment, fromDrop, imagesIn, noteAttachment, readNow, withAttachments, withoutAttachments } from "../notes/attachments.js";
import { promptNotes, promptText } from "../notes/prompts.js";
import { inThousands, percent } from "./gauge.js";
import { iconButton } from "./message_view.js";
import { errorWords } from "../server/server.js";
import { commandIn } from "../chat/chat.js";
import { textOf } from "../chat/items.js";
import { Suggestions } from "./suggestions.js";

/** @type {{ text: string, attachments: import("../notes/attachments.js").Attachment[] }} */
const NOTHING = { text: "", attachments: [] };

export class Composer {
	/** @type {import("../notes/attachments.js").Attachment[]} */
	attachments = [];
	/** @type {import("../chat/items.js").Item | null} */
	editing = null;
	/** Whether what stands in the note goes along by itself was changed by hand for this question. */
	#isChosen = false;
	/** @type {import("../notes/attachments.js").Attachment | null} What of the note at work goes along by itself, as it is now. */
	#own = null;
	#shownChips = "";
	#isSending = false;
	/** What was written before a message was edited. */
	#draft = NOTHING;

	/**
	 * @param {import("./chat_view.js").ChatView} view
	 * @param {HTMLElement} parent
	 */
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

	/** @param {KeyboardEvent} event */
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

	/** Stops the answer; what is written next goes here. */
	async stop() {
		if (!Platform.isMobile) this.input.focus();
		await this.view.chat.stop();
	}

	/** Sends what was written, with the notes as they are now; where that fails, it stays. */
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

	/**
	 * Does what a command says; what is attached waits for a question.
	 * @param {{ name: string, rest: string }} command
	 */
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

	/**
	 * Writes into the input, as a person would.
	 * @param {string} text
	 */
	write(text) {
		this.input.value = text;
		this.input.focus();
	}

	/** @returns {import("./suggestions.js").Offer[]} */
	prompts() {
		const { app, plugin } = this.view;
		return [
			{ name: "/compact", more: "Summarise the older part now", choose: () => this.write("/compact ") },
			{ name: "/new", more: "Begin a new conversation", choose: () => this.view.begin() },
			{ name: "/vault", more: "Have an agent answer that looks into your notes", choose: () => this.view.askVault() },
			...promptNotes(plugin).map((file) => ({ name: `/${file.basename}`, more: "Prompt", choose: async () => this.write(await promptText(app, file)) })),
		];
	}

	/**
	 * Brings a note or the notes of a folder along.
	 * @param {TFile | import("obsidian").TFolder} found
	 */
	async mention(found) {
		await this.add(async () => [found instanceof TFile ? await noteAttachment(this.view.app, found) : await folderAttachment(this.view.app, found)]);
	}

	/** Empties it; what was written before a message was edited comes back. */
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

	/** @param {import("../chat/items.js").Item} item */
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

	/** Returns what of the note at work goes along with a question by itself, as it is now. */
	async byItself() {
		const what = this.view.plugin.preferences.noteContext;
		if (what === "none" || this.#isChosen || this.editing || this.attachments.length) return null;
		return currentAttachment(this.view.app, what).catch(() => null);
	}

	/** Shows what goes along by itself, with its tokens. */
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

	/** @param {import("obsidian").TFile} file */
	async addNote(file) {
		await this.add(async () => [await noteAttachment(this.view.app, file)]);
	}

	/** @param {() => Promise<import("../notes/attachments.js").Attachment[]>} find */
	async add(find) {
		try {
			this.take(await find());
		} catch (error) {
			new Notice(errorWords(error));
		}
	}

	/** @param {import("../notes/attachments.js").Attachment[]} found */
	take(found) {
		const known = new Set(this.attachments.map(({ path, text }) => `${path}\n${text}`));
		this.attachments = [...this.attachments, ...found.filter(({ path, text }) => !known.has(`${path}\n${text}`))];
		this.#isChosen = true;
		this.#own = null;
		this.show();
		this.counting.soon(this.view.chat.model, this.attachments);
	}

	/** Counts anew, for another model. */
	recount() {
		for (const attachment of this.going) attachment.tokens = null;
		if (this.going.length) this.counting.soon(this.view.chat.model, this.going);
		this.show();
	}

	/** All that would go along now. */
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

	/** Tells how much of the window all of it takes. */
	sumWords() {
		const counted = this.going.map(({ tokens }) => tokens);
		if (!counted.length || counted.includes(null)) return "";
		const sum = counted.reduce((/** @type {number} */ all, tokens) => all + (tokens ?? 0), 0);
		const window = this.view.window;
		if (!window) return `${inThousands(sum)} tokens go along.`;
		const free = window - (this.view.chat.context?.tokens ?? 0);
		const words = `${inThousands(sum)} tokens go along, ${percent(sum / window)} of the window.`;
		return sum > free ? `${words} That is more than is free: older messages are compacted, and what is longest is shortened.` : words;
	}

	/** @param {import("../notes/attachments.js").Attachment} attachment */
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

	/** @param {import("../server/server.js").QueuedRow} row */
	waitingRow(row) {
		const element = createDiv({ cls: "elbowroom-waiting" });
		setIcon(element.createSpan(), "clock");
		element.createSpan({ text: textOf(row.message) });
		iconButton(element, "x", "Take it back", async () => {
			if (await this.view.chat.unsay(row.id)) this.takeBack(row);
		});
		return element;
	}

	/** @param {import("../server/server.js").QueuedRow} row */
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

	/** @param {import("../server/server.js").QueuedRow} row */
	takeBack({ message }) {
		const { attachments, question } = partsOfMessage({ text: textOf(message), sent: message });
		this.write([question, this.input.value].filter(Boolean).join("\n\n"));
		if (attachments.length) this.take(attachments);
	}
}

/**
 * Parts a message into what a person wrote and what went along: notes, selections, pictures.
 * @param {Pick<import("../chat/items.js").Item, "text" | "sent">} item
 * @returns {ReturnType<typeof withoutAttachments>}
 */
function partsOfMessage({ text, sent }) {
	if (!Array.isArray(sent?.content)) return withoutAttachments(text);
	const { attachments, question } = withoutAttachments(textOf({ content: sent.content.filter(({ type }) => type === "text") }));
	const images = sent.content.flatMap(({ image_url: image }) => (image ? [{ kind: /** @type {const} */ ("image"), path: "Picture", text: image.url, tokens: null }] : []));
	return { attachments: [...attachments, ...images], question };
}
