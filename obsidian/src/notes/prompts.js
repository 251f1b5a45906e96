// A person's own prompts: the notes of one folder, offered behind a slash in the chat and as commands.
import { TFile, debounce } from "obsidian";
import { currentAttachment } from "./attachments.js";

const PROPERTIES = /^---\n[^]*?\n---\n*/;

/** @param {import("../main.js").default} plugin */
export function promptNotes({ app, preferences }) {
	const folder = preferences.promptFolder.trim().replace(/^\/+|\/+$/g, "");
	if (!folder) return [];
	return app.vault.getMarkdownFiles().filter(({ path }) => path.startsWith(`${folder}/`)).sort((one, other) => one.path.localeCompare(other.path));
}

/**
 * Returns what a prompt says: its note without the properties.
 * @param {import("obsidian").App} app
 * @param {TFile} file
 */
export async function promptText(app, file) {
	return (await app.vault.cachedRead(file)).replace(/\r\n?/g, "\n").replace(PROPERTIES, "").trim();
}

/**
 * Adds a command for each prompt, and keeps them as the notes are.
 * @param {import("../main.js").default} plugin
 */
export function addPromptCommands(plugin) {
	/** @type {Map<string, string>} The ids of the commands by their notes. */
	let known = new Map();
	const update = () => {
		const now = new Map(promptNotes(plugin).map((file) => [file.path, `prompt-${file.path.replace(/\.md$/, "")}`]));
		for (const [path, id] of known) if (!now.has(path)) plugin.removeCommand(id);
		for (const [path, id] of now) {
			if (!known.has(path)) plugin.addCommand({ id, name: `Prompt: ${path.split("/").at(-1)?.replace(/\.md$/, "") ?? path}`, callback: () => void run(plugin, path) });
		}
		known = now;
	};
	const soon = debounce(update, 500, true);
	plugin.app.workspace.onLayoutReady(update);
	const { vault } = plugin.app;
	for (const event of /** @type {const} */ (["create", "delete", "rename"])) plugin.registerEvent(vault.on(/** @type {"create"} */ (event), soon));
	plugin.registerEvent(plugin.events.on("settings", soon));
}

/**
 * Brings a prompt into the chat, with what is selected.
 * @param {import("../main.js").default} plugin
 * @param {string} path
 */
async function run(plugin, path) {
	const file = plugin.app.vault.getAbstractFileByPath(path);
	if (!(file instanceof TFile)) return;
	const selected = await currentAttachment(plugin.app, "selection");
	const view = await plugin.activateView();
	view?.composer?.write(await promptText(plugin.app, file));
	view?.ask(selected ? [selected] : []);
}
