// Puts what a model wrote into notes: as it was shown, and nothing that loads or runs without having been asked for.
import { Modal, Notice, Setting, normalizePath } from "obsidian";
import { errorWords } from "../server/server.js";
import { lastNote, withoutAttachments } from "./attachments.js";
import { harmless, riskyLines } from "./safe_markdown.js";

const UNNAMED = "Answer";
const LONGEST_NAME = 60;
const MOST_LINES_SHOWN = 20;

/**
 * Returns a text as it may be written into a note; null where the person wants nothing written. Where it holds what would
 * load or run something there, such as a picture from elsewhere or code for another plugin, the person is asked.
 * @param {import("obsidian").App} app
 * @param {string} text
 * @param {string} [before] The text in whose place it comes: its lines stand in the note already.
 * @returns {Promise<string | null>}
 */
export async function writable(app, text, before = "") {
	const known = new Set(before.split(/\r\n?|\n/));
	const risky = riskyLines(text).filter((line) => !known.has(line));
	return risky.length ? new Promise((resolve) => new RiskModal(app, text, risky, resolve).open()) : text;
}

class RiskModal extends Modal {
	/**
	 * @param {import("obsidian").App} app
	 * @param {string} text
	 * @param {string[]} risky
	 * @param {(text: string | null) => void} answer
	 */
	constructor(app, text, risky, answer) {
		super(app);
		this.text = text;
		this.risky = risky;
		this.answer = answer;
		/** @type {string | null} */
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

	/** @param {string} text */
	choose(text) {
		this.chosen = text;
		this.close();
	}

	onClose() {
		this.contentEl.empty();
		this.answer(this.chosen);
	}
}

/**
 * Puts a text behind the cursor of the note that was used last.
 * @param {import("obsidian").App} app
 * @param {string} text
 */
export async function insertInNote(app, text) {
	const note = lastNote(app);
	if (!note) return void new Notice("Open a note first, in which it can be inserted.");
	const written = await writable(app, text);
	if (written === null) return undefined;
	note.editor.setCursor(note.editor.getCursor("to")); // behind what is selected, not in its place
	note.editor.replaceSelection(written);
	return void new Notice(`Inserted in ${note.file?.basename ?? "the note"}.`);
}

/**
 * Makes a note of a text, and opens it.
 * @param {import("obsidian").App} app
 * @param {string} text
 * @param {string} [title] Its first words where there is none.
 */
export async function saveAsNote(app, text, title = "") {
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

/**
 * Returns a whole conversation as a note: what was said, with links to the notes that went along.
 * @param {import("../chat/chat.js").Chat} chat
 */
export function asMarkdown({ items, model }) {
	const parts = items.filter(({ role, text }) => role !== "system" && text).map(({ role, text }) => {
		const { question, attachments } = role === "user" ? withoutAttachments(text) : { question: text, attachments: [] };
		const links = [...new Set(attachments.map(({ path }) => path).filter(Boolean))].map((path) => `[[${path.replace(/\.md$/, "")}]]`);
		return [`## ${role === "user" ? "You" : model || UNNAMED}`, ...(links.length ? [`With ${links.join(", ")}`] : []), question].join("\n\n");
	});
	return `${parts.join("\n\n")}\n`;
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
