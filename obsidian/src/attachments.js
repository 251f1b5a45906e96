// What goes along with a question: notes and selections, in a form that elbowroom shortens where it is too long.
import { MarkdownView, TFile, TFolder, debounce } from "obsidian";

const MOST_OF_A_FOLDER = 20;
const MOST_BYTES = 5_000_000;
const BLOCK = /<(vault_note|selected_text) path="([^"\n]*)">\n([^]*?)\n<\/\1>\n*/g;

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

/** @param {Attachment} attachment */
function blockOf({ kind, path, text }) {
	return `<${kind} path="${path.replaceAll('"', "'")}">\n${text}\n</${kind}>`;
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
		if (found.index !== end) break; // further on it is part of the question
		const [all, kind = "", path = "", content = ""] = found;
		attachments.push({ kind: kind === "vault_note" ? kind : "selected_text", path, text: content, tokens: null });
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
	const text = data?.getData("text/plain").trim() ?? "";
	const files = text.split("\n").map((line) => fileOf(app, line.trim()));
	if (text && files.every((file) => file !== null)) {
		const notes = files.flatMap((file) => (file instanceof TFolder ? notesIn(file) : file instanceof TFile ? [file] : []));
		return Promise.all(notes.map((file) => noteAttachment(app, file)));
	}
	if (!text) throw new Error("Drop a note, a folder or a text here.");
	const path = lastNote(app)?.file?.path ?? "";
	return [{ kind: "selected_text", path, text: data?.getData("text/plain") ?? "", tokens: null }];
}

/**
 * @param {import("obsidian").App} app
 * @param {string} dropped An address of Obsidian's, a link, or a path.
 */
function fileOf(app, dropped) {
	const path = addressed(dropped) ?? /^!?\[\[([^\]|#]+)[^\]]*\]\]$/.exec(dropped)?.[1] ?? dropped;
	return path ? app.vault.getAbstractFileByPath(path) ?? app.metadataCache.getFirstLinkpathDest(path, "") : null;
}

/** @param {string} dropped */
function addressed(dropped) {
	if (!dropped.startsWith("obsidian://")) return null;
	try {
		return new URL(dropped).searchParams.get("file");
	} catch {
		return null;
	}
}

/**
 * @param {TFolder} folder
 * @throws {Error} Where there are too many.
 */
function notesIn(folder) {
	const notes = folder.children.filter((child) => child instanceof TFile && child.extension === "md");
	if (notes.length > MOST_OF_A_FOLDER) throw new Error(`${folder.name} has ${notes.length} notes; at most ${MOST_OF_A_FOLDER} go along at once.`);
	return /** @type {TFile[]} */ (notes);
}

/** Counts what is about to be sent with the model's own tokenizer, a moment after it has changed. */
export class Counting {
	/** @type {AbortController | null} */
	#counting = null;

	/**
	 * @param {import("./server.js").Server} server
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
		this.#counting?.abort();
	}
}
