// Commands for the note at work: rewrite, summarise, continue and ask.
import { currentAttachment } from "./attachments.js";
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
 * @typedef {{ editor: import("obsidian").Editor, from: import("obsidian").EditorPosition, to: import("obsidian").EditorPosition, text: string, isBefore: boolean }} Place
 */

/** @param {import("./main.js").default} plugin */
export function addEditorCommands(plugin) {
	for (const task of TASKS) {
		plugin.addCommand({
			id: task.id, name: task.name, icon: task.icon,
			editorCheckCallback: (checking, editor) => {
				if (!editor.getSelection()) return false;
				if (!checking) begin(plugin, task, editor);
				return true;
			},
		});
	}
	plugin.addCommand({ id: CONTINUE.id, name: CONTINUE.name, icon: CONTINUE.icon, editorCallback: (editor) => begin(plugin, CONTINUE, editor) });
	plugin.addCommand({
		id: "ask-about-selection", name: "Ask about selection", icon: "message-circle-question",
		editorCheckCallback: (checking, editor) => {
			if (!editor.getSelection()) return false;
			if (!checking) void ask(plugin);
			return true;
		},
	});
	plugin.registerEvent(plugin.app.workspace.on("editor-menu", (menu, editor) => {
		if (!editor.getSelection()) return;
		for (const task of TASKS) menu.addItem((item) => item.setTitle(task.name).setIcon(task.icon).onClick(() => begin(plugin, task, editor)));
		menu.addItem((item) => item.setTitle("Ask about selection").setIcon("message-circle-question").onClick(() => void ask(plugin)));
	}));
}

/** @param {import("./main.js").default} plugin */
async function ask(plugin) {
	const attachment = await currentAttachment(plugin.app, "selection");
	const view = await plugin.activateView();
	await view?.ask({ attachments: attachment ? [attachment] : [] });
}

/**
 * @param {import("./main.js").default} plugin
 * @param {Task} task
 * @param {import("obsidian").Editor} editor
 */
function begin(plugin, task, editor) {
	new PreviewModal(plugin, task, placeOf(task, editor)).open();
}

/**
 * @param {Task} task
 * @param {import("obsidian").Editor} editor
 * @returns {Place}
 */
function placeOf(task, editor) {
	if (task !== CONTINUE) return { editor, from: editor.getCursor("from"), to: editor.getCursor("to"), text: editor.getSelection(), isBefore: false };
	const at = editor.getCursor("to");
	const text = editor.getRange({ line: 0, ch: 0 }, at).slice(-MOST_BEFORE);
	return { editor, from: at, to: at, text, isBefore: true };
}

/**
 * Puts a text in its place as one step that one undo takes back. Returns false, and changes nothing, where the note has
 * changed there meanwhile.
 * @param {Place} place
 * @param {string} text
 */
export function putInPlace({ editor, from, to, text: before, isBefore }, text) {
	const stands = isBefore ? editor.getRange({ line: 0, ch: 0 }, from).slice(-MOST_BEFORE) : editor.getRange(from, to);
	if (stands !== before) return false;
	editor.transaction({ changes: [{ from, to, text }] });
	return true;
}
