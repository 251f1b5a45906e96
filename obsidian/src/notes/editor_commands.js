// Commands for the note at work: rewrite, summarise, continue and ask.
import { PreviewModal } from "./preview_modal.js";

const MOST_BEFORE = 6000;
const ONLY = "Answer with the text alone, in its language and its Markdown, without any word before or after it.";

/**
 * @typedef {object} Task What a model is asked to do with a text.
 * @property {string} id
 * @property {string} name
 * @property {string} icon
 * @property {string} order
 * @property {boolean} asksHow Whether the person may say how.
 */

/** @type {Task[]} */
const TASKS = [
	{ id: "rewrite-selection", name: "Rewrite selection", icon: "pencil-line", order: `Rewrite the text so that it reads better, and keep what it says. ${ONLY}`, asksHow: true },
	{ id: "summarise-selection", name: "Summarise selection", icon: "list-collapse", order: `Summarise the text. ${ONLY}`, asksHow: false },
];
/** @type {Task} */
const CONTINUE = { id: "continue-writing", name: "Continue writing", icon: "text-cursor", order: `Continue the text from where it ends, and repeat nothing of it. ${ONLY}`, asksHow: false };

/**
 * A place in a note, and the text that stood there when the model was asked.
 * @typedef {object} Place
 * @property {import("obsidian").Editor} editor
 * @property {import("obsidian").MarkdownFileInfo} info
 * @property {import("obsidian").TFile | null} file The note that `info` showed then.
 * @property {import("obsidian").EditorPosition} from
 * @property {import("obsidian").EditorPosition} to
 * @property {string} text
 * @property {boolean} isBefore Whether the text stands before the place, not in it.
 */

/** @param {import("../main.js").default} plugin */
export function addEditorCommands(plugin) {
	/** @type {(task: Task) => (editor: import("obsidian").Editor, info: import("obsidian").MarkdownFileInfo) => void} */
	const previewOf = (task) => (editor, info) => new PreviewModal(plugin, task, placeOf(task, editor, info)).open();
	/** @type {{ id: string, name: string, icon: string, run: ReturnType<typeof previewOf> }[]} */
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

/**
 * Takes a selection to the chat, where the person writes the question.
 * @param {import("../main.js").default} plugin
 * @param {import("obsidian").Editor} editor
 * @param {import("obsidian").MarkdownFileInfo} info
 */
async function ask(plugin, editor, info) {
	/** @type {import("./attachments.js").Attachment} */
	const attachment = { kind: "selected_text", path: info.file?.path ?? "", text: editor.getSelection(), tokens: null };
	const view = await plugin.activateView();
	view?.ask([attachment]);
}

/**
 * Tells whether a command has a text to work with: what is selected, or what stands before the cursor.
 * @param {string} id
 * @param {import("obsidian").Editor} editor
 */
function fits(id, editor) {
	return editor.getSelection().trim() !== "" || (id === CONTINUE.id && textBefore(editor, editor.getCursor("to")).trim() !== "");
}

/**
 * @param {Task} task
 * @param {import("obsidian").Editor} editor
 * @param {import("obsidian").MarkdownFileInfo} info
 * @returns {Place}
 */
function placeOf(task, editor, info) {
	const note = { editor, info, file: info.file };
	const to = editor.getCursor("to");
	if (task === CONTINUE) return { ...note, from: to, to, text: textBefore(editor, to), isBefore: true };
	return { ...note, from: editor.getCursor("from"), to, text: editor.getSelection(), isBefore: false };
}

/**
 * @param {import("obsidian").Editor} editor
 * @param {import("obsidian").EditorPosition} at
 */
function textBefore(editor, at) {
	return editor.getRange({ line: 0, ch: 0 }, at).slice(-MOST_BEFORE).replace(/^[\uDC00-\uDFFF]/, "");
}

/**
 * Puts a text in its place as one step that one undo takes back. Returns false, and changes nothing, where what the
 * model was given is not found there any more, nor at one other place of the note.
 * @param {Place} place
 * @param {string} text
 */
export function putInPlace(place, text) {
	const found = isOpen(place) ? (stands(place) ? place : movedTo(place)) : null;
	if (!found) return false;
	place.editor.transaction({ changes: [{ from: found.from, to: found.to, text }] });
	return true;
}

/**
 * Returns a text with the spaces and ends of lines around it that another one has.
 * @param {string} other
 * @param {string} text
 */
export function withEdgesOf(other, text) {
	return other.slice(0, other.length - other.trimStart().length) + text.trim() + other.slice(other.trimEnd().length);
}

/**
 * Tells whether the editor still shows the note of a place.
 * @param {Place} place
 */
export function isOpen({ info, file }) {
	return info.file === file;
}

/** @param {Place} place */
function stands({ editor, from, to, text, isBefore }) {
	return (isBefore ? textBefore(editor, from) : editor.getRange(from, to)) === text;
}

/**
 * Returns where the text of a place stands now; null where it stands nowhere, or more than once.
 * @param {Place} place
 */
function movedTo({ editor, text, isBefore }) {
	const whole = editor.getValue();
	const start = whole.indexOf(text);
	if (start < 0 || whole.indexOf(text, start + 1) >= 0) return null;
	const to = editor.offsetToPos(start + text.length);
	return { from: isBefore ? to : editor.offsetToPos(start), to };
}
