// Where a person writes: the text, what goes along with it and how many tokens that takes, and what waits.
import { Notice, setIcon } from "obsidian";
import { Counting, currentAttachment, fromDrop, noteAttachment, withAttachments, withoutAttachments } from "../notes/attachments.js";
import { inThousands, percent } from "./gauge.js";
import { iconButton } from "./message_view.js";
import { errorWords } from "../server/server.js";
import { commandIn } from "../chat/chat.js";
import { textOf } from "../chat/items.js";

/** @type {{ text: string, attachments: import("../notes/attachments.js").Attachment[] }} */
const NOTHING = { text: "", attachments: [] };

export class Composer {
	/** @type {import("../notes/attachments.js").Attachment[]} */
	attachments = [];
	/** @type {import("../chat/items.js").Item | null} */
	editing = null;
	/** Whether what stands in the note goes along by itself was changed by hand for this question. */
	#isChosen = false;
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

	/** @param {KeyboardEvent} event */
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

	/** @param {import("../chat/items.js").Item} item */
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

	/** @param {import("../notes/attachments.js").Attachment} attachment */
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

	/** @param {import("../server/server.js").QueuedRow} row */
	waitingRow(row) {
		const element = createDiv({ cls: "elbowroom-waiting" });
		setIcon(element.createSpan(), "clock");
		element.createSpan({ text: textOf(row.message) });
		iconButton(element, "x", "Take it back", () => this.view.chat.unsay(row.id));
		return element;
	}
}
