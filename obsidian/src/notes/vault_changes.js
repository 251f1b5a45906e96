// What agents have changed in the notes: each change with links to its notes, and a way to take it back.
import { MarkdownView, Notice } from "obsidian";
import { argumentsOf } from "../chat/items.js";
import { ServerError, errorWords } from "../server/server.js";

const WRITES = new Set(["vault_create", "vault_append", "vault_patch", "vault_rename", "vault_delete"]);
const READS = new Set(["vault_read", "vault_outline", "vault_search"]);
const MOST_SOURCES = 12;
const AROUND_SECONDS = 1; // both times are of the clock of elbowroom

/**
 * Shows the changes that an agent made in one answer, as far as they can still be taken back. It asks elbowroom once
 * for each call that wrote; what is shown already stays, also when it is undone.
 * @param {import("../view/message_view.js").MessageView} message
 * @param {HTMLElement} parent
 */
export async function showChanges(message, parent) {
	const { item, view } = message;
	const paths = new Set(item.steps.filter(isChange).flatMap(pathsOf));
	const made = String(item.steps.filter(isChange).length);
	if (!paths.size || parent.dataset.made === made) return;
	parent.dataset.made = made;
	try {
		const rows = await view.plugin.server.vaultChanges();
		const next = view.chat.items[view.chat.items.indexOf(item) + 1]?.at ?? Infinity;
		const known = new Set(parent.findAll(".elbowroom-change").map((row) => row.dataset.change));
		const own = rows.filter((row) => !known.has(row.id) && row.when >= item.at - AROUND_SECONDS && row.when < next && isOf(paths, row));
		parent.append(...own.reverse().map((row) => changeRow(message, row)));
	} catch (error) {
		const pair = error instanceof ServerError && error.needsPairing;
		parent.createDiv({ cls: "elbowroom-quiet", text: pair ? "Pair Obsidian in the plugin's settings to take changes of notes back here." : errorWords(error) });
	}
}

/**
 * Shows the notes that an agent has read or found for an answer, as far as this vault has them.
 * @param {import("../view/message_view.js").MessageView} message
 * @param {HTMLElement} parent
 */
export function showSources(message, parent) {
	const { vault } = message.view.app;
	const found = message.item.steps.flatMap((step) => (READS.has(step.name) && step.state === "completed" ? sourcesOf(step) : []));
	const notes = [...new Set(found)].filter((path) => vault.getAbstractFileByPath(path)).slice(0, MOST_SOURCES);
	parent.empty();
	if (notes.length) parent.createSpan({ cls: "elbowroom-quiet", text: "From" });
	for (const path of notes) message.noteLink(parent.createSpan({ cls: "elbowroom-chip" }), path, path.split("/").at(-1)?.replace(/\.md$/, "") ?? path);
}

/**
 * Returns the paths of notes that a call has read, or has found: they begin the lines of its result.
 * @param {import("../chat/items.js").Step} step
 */
function sourcesOf(step) {
	const { path } = argumentsOf(step);
	const read = typeof path === "string" && path ? [path, `${path}.md`] : [];
	return [...read, ...[...step.result.matchAll(/^(?:[-*] )?(\S.*?\.md)(?=[:\s]|$)/gm)].map(([, found = ""]) => found)];
}

/**
 * Tells whether a call of a tool may have changed notes.
 * @param {import("../chat/items.js").Step} step
 */
export function isChange(step) {
	return WRITES.has(step.name) && step.state === "completed";
}

/** @param {import("../chat/items.js").Step} step */
function pathsOf(step) {
	const { path, new_path: moved } = argumentsOf(step);
	return [path, moved].filter((each) => typeof each === "string").map(bare);
}

/**
 * Tells whether a change is of one of these notes. A deleted one lies elsewhere now, so that only the words name it.
 * @param {Set<string>} paths
 * @param {import("../server/server.js").ChangeRow} change
 */
function isOf(paths, { what, notes }) {
	return notes.some((note) => paths.has(bare(note))) || [...paths].some((path) => bare(what).endsWith(` ${path}`));
}

/**
 * Returns a path as notes are compared: models write names in other letters, and without their ending.
 * @param {string} path
 */
function bare(path) {
	return path.normalize().toLowerCase().replace(/^\.?\//, "").replace(/\.md$/, "");
}

/**
 * @param {import("../view/message_view.js").MessageView} message
 * @param {import("../server/server.js").ChangeRow} change
 */
function changeRow(message, { id, agent, what, notes }) {
	const row = createDiv({ cls: "elbowroom-change", attr: { "data-change": id } });
	row.createSpan({ text: `${agent} ${what}` });
	for (const note of notes.filter((each) => !each.startsWith("."))) message.noteLink(row, note, note.split("/").at(-1) ?? note);
	const told = row.createSpan({ cls: "elbowroom-quiet", attr: { role: "status" } });
	const undo = row.createEl("button", { text: "Undo", attr: { type: "button", "aria-label": `Undo: ${what}` } });
	undo.addEventListener("click", async () => {
		undo.disabled = true;
		try {
			await saveNotes(message.view.app);
			told.setText((await message.view.plugin.server.undoChange(id)).told);
			undo.remove();
		} catch (error) {
			new Notice(errorWords(error));
			undo.disabled = false;
			if (error instanceof ServerError && error.code === "no_such_change") undo.remove();
		}
	});
	return row;
}

/**
 * Writes what is being typed into its notes, so that elbowroom takes back no change behind a person's words.
 * @param {import("obsidian").App} app
 */
async function saveNotes(app) {
	for (const { view } of app.workspace.getLeavesOfType("markdown")) if (view instanceof MarkdownView) await view.save();
}
