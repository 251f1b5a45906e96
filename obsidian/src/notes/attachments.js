// What goes along with a question: notes and selections, in a form that elbowroom shortens where it is too long.
import { MarkdownView, TFile, TFolder, arrayBufferToBase64, debounce } from "obsidian";

const MOST_AT_ONCE = 20;
const MOST_BYTES = 5_000_000;
/** @type {Record<string, string>} */
const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", webp: "image/webp", gif: "image/gif" };
const BLOCK = /<(vault_note|selected_text) path="([^"\n]*)">\n([^]*?)\n<\/\1>\n*/gy; // one right behind the other

/**
 * @typedef {object} Attachment
 * @property {"vault_note" | "selected_text" | "folder" | "image"} kind
 * @property {string} path The note's, the folder's or the picture's.
 * @property {string} text What it held when it was looked at last; of a picture, its address as data.
 * @property {number | null} tokens Null until they are counted.
 */

/**
 * Reads anew what goes along: notes and folders as they are now. What was selected or pasted is what it was.
 * @param {import("obsidian").App} app
 * @param {Attachment[]} attachments
 * @returns {Promise<Attachment[]>}
 * @throws {Error} A sentence, where something is gone or cannot go along.
 */
export async function readNow(app, attachments) {
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

/**
 * Returns a question with what goes along before it: a text, or parts where there are pictures.
 * @param {Attachment[]} attachments
 * @param {string} question
 * @returns {string | import("../server/server.js").ContentPart[]}
 */
export function withAttachments(attachments, question) {
	const images = attachments.filter(({ kind }) => kind === "image");
	const text = [...attachments.filter(({ kind }) => kind !== "image").map(blockOf), question].filter(Boolean).join("\n\n");
	if (!images.length) return text;
	return [...(text ? [{ type: "text", text }] : []), ...images.map(({ text: url }) => ({ type: "image_url", image_url: { url } }))];
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
	if (file.extension.toLowerCase() in IMAGES) return imageAttachment(app, file);
	if (!["md", "txt", "canvas"].includes(file.extension)) throw new Error(`${file.name} is no note, so it cannot go along.`);
	if (file.stat.size > MOST_BYTES) throw new Error(`${file.name} is too large to go along.`);
	const open = app.workspace.getLeavesOfType("markdown").map(({ view }) => view).find((view) => view instanceof MarkdownView && view.file === file);
	const text = open instanceof MarkdownView ? open.editor.getValue() : await app.vault.read(file); // what is typed is saved a moment later
	return { kind: "vault_note", path: file.path, text, tokens: null };
}

/**
 * @param {import("obsidian").App} app
 * @param {TFile} file
 * @returns {Promise<Attachment>}
 */
async function imageAttachment(app, file) {
	if (file.stat.size > MOST_BYTES) throw new Error(`${file.name} is too large to go along.`);
	return imageOf(file.path, IMAGES[file.extension.toLowerCase()] ?? "", await app.vault.readBinary(file));
}

/**
 * Returns pictures that were pasted or dropped from elsewhere.
 * @param {DataTransfer | null} data
 * @returns {Promise<Attachment[]>}
 * @throws {Error} A sentence, where one is too large.
 */
export async function imagesIn(data) {
	const files = [...data?.files ?? []].filter(({ type }) => Object.values(IMAGES).includes(type));
	return Promise.all(files.map(async (file) => {
		if (file.size > MOST_BYTES) throw new Error(`${file.name || "The picture"} is too large to go along.`);
		return imageOf(file.name || "Picture", file.type, await file.arrayBuffer());
	}));
}

/**
 * @param {string} path
 * @param {string} type
 * @param {ArrayBuffer} bytes
 * @returns {Attachment}
 */
function imageOf(path, type, bytes) {
	return { kind: "image", path, text: `data:${type};base64,${arrayBufferToBase64(bytes)}`, tokens: null };
}

/**
 * Returns a folder, whose notes go along as they are when the question is sent.
 * @param {import("obsidian").App} app
 * @param {TFolder} folder
 * @returns {Promise<Attachment>}
 * @throws {Error} A sentence, where it has no notes, or too many.
 */
export async function folderAttachment(app, folder) {
	const notes = await Promise.all(notesIn([folder]).map((file) => noteAttachment(app, file)));
	return { kind: "folder", path: folder.path, text: notes.map(blockOf).join("\n\n"), tokens: null };
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
	if (what === "note") return noteAttachment(app, view.file);
	const text = view.editor.getSelection();
	return text ? { kind: "selected_text", path: view.file.path, text, tokens: null } : null;
}

/**
 * Returns the note that was used last, also while the chat is.
 * @param {import("obsidian").App} app
 */
export function lastNote(app) {
	const { workspace } = app;
	const seen = [workspace.getActiveViewOfType(MarkdownView), workspace.getMostRecentLeaf()?.view, ...workspace.getLeavesOfType("markdown").map(({ view }) => view)];
	return seen.find((view) => view instanceof MarkdownView) ?? null; // the leaf used last may show no note
}

/**
 * Returns what was dropped: notes by their links, all notes of a folder, or a text.
 * @param {import("obsidian").App} app
 * @param {DataTransfer | null} data
 * @returns {Promise<Attachment[]>}
 * @throws {Error} A sentence, where it cannot go along.
 */
export async function fromDrop(app, data) {
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
