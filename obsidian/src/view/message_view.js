// One message of a conversation, and what can be done with it.
import { Component, MarkdownRenderer, Notice, setIcon } from "obsidian";
import { argumentsOf } from "../chat/items.js";
import { helpFor } from "../chat/marks.js";
import { withoutAttachments } from "../notes/attachments.js";
import { safeMarkdown, settledEnd } from "../notes/safe_markdown.js";
import { insertInNote, saveAsNote } from "../notes/saving.js";
import { showChanges, showSources } from "../notes/vault_changes.js";

const GO_ON = "Go on exactly where you stopped.";
/** How often a text is drawn at most while it streams. */
export const DRAW_MS = 200;

/**
 * Returns a button with an icon, named by what it does.
 * @param {HTMLElement} parent
 * @param {string} icon
 * @param {string} name
 * @param {() => unknown} act
 */
export function iconButton(parent, icon, name, act) {
	const button = parent.createEl("button", { cls: "clickable-icon", attr: { "aria-label": name, type: "button" } });
	setIcon(button, icon);
	button.addEventListener("click", () => void act());
	return button;
}

/** Shows one message; what of it has changed is drawn anew, and nothing else. */
export class MessageView extends Component {
	/** What Markdown has loaded; it goes with what it has drawn. */
	#drawn = new Component();
	/** @type {{ text: string | null, isStreaming: boolean, steps: unknown, marks: string }} What is shown. */
	#shown = { text: null, isStreaming: false, steps: null, marks: "" };
	/** What Markdown has loaded for the end of a text that is being written. */
	#tail = new Component();
	/** How much of a text that is being written is drawn for good. */
	#settled = 0;

	/**
	 * @param {import("./chat_view.js").ChatView} view
	 * @param {import("../chat/items.js").Item} item
	 */
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

	/** Whether something of it has changed since it was drawn. */
	get isStale() {
		const { item } = this;
		const { text, isStreaming, steps } = this.#shown;
		return text !== item.text || isStreaming !== (item.status === "streaming") || steps !== item.steps || this.thoughtText.textContent !== item.thought || this.hasNewMarks;
	}

	/** Draws it, where something of it has changed. */
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

	/**
	 * Shows the text. While it is written, its paragraphs that have ended stay as they are.
	 * @param {boolean} isStreaming
	 */
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

	/**
	 * Draws a text. Returns what Markdown has loaded for it.
	 * @param {string} text
	 * @param {HTMLElement} parent
	 */
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

	/**
	 * Shows what the model did not get, and what can be done.
	 * @param {import("../chat/marks.js").Mark} mark
	 */
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

	/** @param {import("../chat/items.js").Step} step */
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

	/**
	 * @param {HTMLElement} parent
	 * @param {string} path
	 * @param {string} words
	 */
	noteLink(parent, path, words) {
		const link = parent.createEl("a", { cls: "internal-link", text: words, href: "#" });
		link.addEventListener("click", (event) => {
			event.preventDefault();
			void this.view.app.workspace.openLinkText(path, "", event.ctrlKey || event.metaKey ? "tab" : false);
		});
	}
}
