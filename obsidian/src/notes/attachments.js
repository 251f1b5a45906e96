// What goes along with a question: notes and selections, in a form that elbowroom shortens where it is too long.
import { MarkdownView, TFile, TFolder, debounce } from "obsidian";

const MOST_AT_ONCE = 20;
const MOST_BYTES = 5_000_000;
const BLOCK = /<(vault_note|selected_text) path="([^"\n]*)">\n([^]*?)\n<\/\1>\n*/gy; // one right behind the other

/**
 * @typedef {object} Attachment
 * @property {"vault_note" | "selected_text"} kind
 * @property {string} path The note's.
 * @property {string} text
 * @property {number | null} tokens Null until they are counted.
 */

/**
 * Returns a question with what goes along before it.
 * @param {Attachment[]} attachments
 * @param {string} question
 */
export function withAttachments(attachments, question) {
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
export function withoutAttachments(text) {
	/** @type {Attachment[]} */
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
export async function noteAttachment(app, file) {
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
export async function currentAttachment(app, what) {
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
export function lastNote(app) {
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
export async function fromDrop(app, data) {
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

/**
 * @param {import("obsidian").App} app
 * @param {string} dropped
 */
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

/**
 * @param {TFolder} folder
 * @returns {TFile[]}
 */
function notesOf(folder) {
	return folder.children.flatMap((child) => (child instanceof TFolder ? notesOf(child) : child instanceof TFile && child.extension === "md" ? [child] : []));
}

/** Counts what is about to be sent with the model's own tokenizer, a moment after it has changed. */
export class Counting {
	/** @type {AbortController | null} */
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

	/**
	 * @param {string} model
	 * @param {Attachment[]} attachments
	 */
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
