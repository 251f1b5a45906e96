// What agents have changed in the notes: each change with links to its notes, and a way to take it back.
import { Notice } from "obsidian";
import { errorWords } from "./server.js";

const WRITES = new Set(["vault_create", "vault_append", "vault_patch", "vault_rename", "vault_delete"]);
const AROUND_SECONDS = 5;

/** Tells whether a call of a tool may have changed notes. */
/** @param {import("./chat.js").Step} step */
export function isChange(step) {
	return WRITES.has(step.name) && step.state === "completed";
}

/**
 * Shows the changes that an agent made in one answer, as far as they can still be taken back.
 * @param {import("./message_view.js").MessageView} message
 * @param {HTMLElement} parent
 */
export async function showChanges(message, parent) {
	const { item, view } = message;
	if (!item.steps.some(isChange)) return;
	const { server } = view.plugin;
	const rows = await server.vaultChanges().catch(() => []);
	const paths = new Set(item.steps.filter(isChange).flatMap(({ arguments: given }) => given.match(/"(?:new_)?path"\s*:\s*"[^"]+"/g) ?? []).map((found) => found.replace(/^.*:\s*"|"$/g, "")));
	const own = rows.filter(({ when, notes }) => when >= item.at - AROUND_SECONDS && notes.some((note) => paths.has(note) || paths.has(note.replace(/\.md$/, ""))));
	parent.replaceChildren(...own.map((row) => changeRow(message, row)));
}

/**
 * @param {import("./message_view.js").MessageView} message
 * @param {import("./server.js").ChangeRow} change
 */
function changeRow(message, { id, agent, what, notes }) {
	const row = createDiv({ cls: "elbowroom-change" });
	row.createSpan({ text: `${agent} ${what}` });
	for (const note of notes) message.noteLink(row, note, note.split("/").at(-1) ?? note);
	const undo = row.createEl("button", { text: "Undo", attr: { type: "button", "aria-label": `Undo: ${what}` } });
	undo.addEventListener("click", async () => {
		undo.disabled = true;
		try {
			const { told } = await message.view.plugin.server.undoChange(id);
			undo.remove();
			row.createSpan({ cls: "elbowroom-quiet", text: told });
		} catch (error) {
			undo.disabled = false;
			new Notice(errorWords(error));
		}
	});
	return row;
}
