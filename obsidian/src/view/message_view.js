// One message of a conversation, and what can be done with it.
import { Component, MarkdownRenderer, Notice, normalizePath, setIcon } from "obsidian";
import { lastNote, withoutAttachments } from "../notes/attachments.js";
import { argumentsOf } from "../chat/items.js";
import { safeMarkdown } from "../notes/safe_markdown.js";
import { showChanges } from "../notes/vault_changes.js";

const UNNAMED = "Answer";
const LONGEST_NAME = 60;
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

/** Shows one message; it is drawn anew where it has changed. */
export class MessageView extends Component {
	/** What Markdown has loaded; it goes with what it has drawn. */
	#drawn = new Component();
	#shown = "";

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

	/** @param {boolean} isLast */
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

/**
 * Returns a name for a note from its first line.
 * @param {string} text
 */
export function nameFor(text) {
	const line = text.split("\n").find((each) => each.trim()) ?? "";
	const plain = line.replace(/[\\/:*?"<>|#^[\]`_]/g, " ").replace(/\s+/g, " ").trim();
	return plain.slice(0, LONGEST_NAME).trim().replace(/^\.+/, "") || UNNAMED;
}

/**
 * @param {import("obsidian").App} app
 * @param {string} folder
 * @param {string} name
 */
export function freePath(app, folder, name) {
	for (let number = 1; ; number++) {
		const path = normalizePath(`${folder}/${name}${number > 1 ? ` ${number}` : ""}.md`);
		if (!app.vault.getAbstractFileByPath(path)) return path;
	}
}
