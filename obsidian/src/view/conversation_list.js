// The list of conversations that elbowroom keeps, whichever program they were begun in.
import { Modal, Notice, Setting, debounce, moment } from "obsidian";
import { iconButton } from "./message_view.js";
import { ServerError, errorWords, isAbort } from "../server/server.js";

const ROWS = 30;
const LIST_END = 200;

/** @typedef {{ id: string, title: string }} Named */

export class ConversationList extends Modal {
	/** @type {AbortController | null} */
	#asking = null;
	/** @type {string | null} */
	#next = null;
	#search = "";

	/**
	 * @param {import("../main.js").default} plugin
	 * @param {(id: string) => void} choose
	 */
	constructor(plugin, choose) {
		super(plugin.app);
		this.plugin = plugin;
		this.choose = choose;
	}

	onOpen() {
		this.setTitle("Conversations");
		const input = this.contentEl.createEl("input", { type: "search", attr: { "aria-label": "Search in all that was said", placeholder: "Search in all that was said" } });
		this.list = this.contentEl.createEl("ul", { cls: "elbowroom-conversations" });
		this.foot = this.contentEl.createDiv({ cls: "elbowroom-quiet", attr: { role: "status" } });
		const search = debounce(() => void this.begin(input.value.trim()), 250, true);
		input.addEventListener("input", search);
		this.list.addEventListener("scroll", () => this.fill());
		this.contentEl.addEventListener("keydown", (event) => this.pressed(event));
		input.focus();
		void this.begin("");
	}

	/**
	 * Moves with the arrow keys between the search and the conversations.
	 * @param {KeyboardEvent} event
	 */
	pressed(event) {
		const step = event.isComposing ? 0 : event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
		if (!step) return;
		const stops = [...this.contentEl.findAll("input, .elbowroom-open")];
		const row = event.targetNode?.parentElement?.querySelector(".elbowroom-open");
		const now = stops.findIndex((stop) => stop === event.target || stop === row);
		event.preventDefault();
		stops[Math.max(0, now + step)]?.focus();
	}

	/** @param {string} search */
	async begin(search) {
		this.#asking?.abort();
		this.#asking = null;
		this.#next = null;
		this.#search = search;
		await this.more(true);
	}

	/** Asks for more where the end of the list is near, also where it is shorter than its room. */
	fill() {
		const { list } = this;
		if (list?.isShown() && this.#next && list.scrollHeight - list.scrollTop - list.clientHeight < LIST_END) void this.more();
	}

	/** @param {boolean} [isFirst] */
	async more(isFirst = false) {
		if (this.#asking || !this.list || !this.foot) return;
		const { signal } = this.#asking = new AbortController();
		try {
			const page = await this.plugin.server.conversations({ q: this.#search, before: this.#next, limit: ROWS, signal });
			if (isFirst) this.list.empty();
			for (const row of page.data) this.list.append(this.row(row));
			this.#next = page.has_more ? page.next : null;
			this.foot.setText(this.list.childElementCount ? "" : this.#search ? "Nothing was found." : "Nothing was said yet.");
		} catch (error) {
			if (isAbort(error) || (error instanceof ServerError && error.code === "search_replaced")) return;
			this.foot.setText(errorWords(error));
			return;
		} finally {
			if (this.#asking?.signal === signal) this.#asking = null;
		}
		this.fill();
	}

	/** @param {import("../server/server.js").ConversationRow} row */
	row(row) {
		const element = createEl("li", { cls: "elbowroom-conversation" });
		const button = element.createEl("button", { cls: "elbowroom-open", attr: { type: "button" } });
		const title = button.createDiv({ cls: "elbowroom-title", text: titleOf(row) });
		const when = moment.unix(row.updated).fromNow();
		button.createDiv({ cls: "elbowroom-quiet", text: [row.agent, row.status === "running" ? "being answered" : when].filter(Boolean).join(" · ") });
		button.addEventListener("click", () => {
			this.close();
			this.choose(row.id);
		});
		iconButton(element, "pencil", `Rename ${titleOf(row)}`, () => new RenameModal(this.plugin, row, (now) => { row.title = now; title.setText(titleOf(row)); }).open());
		iconButton(element, "trash-2", `Delete ${titleOf(row)}`, async () => { if (await removeConversation(this.plugin, row)) element.remove(); });
		return element;
	}

	onClose() {
		this.#asking?.abort();
		this.contentEl.empty();
	}
}

/** @param {Named} row */
function titleOf({ title }) {
	return title.trim() || "Without a title";
}

export class RenameModal extends Modal {
	/**
	 * @param {import("../main.js").default} plugin
	 * @param {Named} row
	 * @param {(title: string) => void} done
	 */
	constructor(plugin, row, done) {
		super(plugin.app);
		this.plugin = plugin;
		this.row = row;
		this.done = done;
		this.name = row.title;
	}

	onOpen() {
		this.setTitle("Rename the conversation");
		new Setting(this.contentEl).setName("Title").setDesc("Leave it empty to have it named by its first words.").addText((text) => {
			text.setValue(this.name).onChange((value) => { this.name = value.trim(); });
			text.inputEl.setAttr("aria-label", "Title");
			text.inputEl.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) void this.save(); });
			text.inputEl.select();
		});
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Rename").setCta().onClick(() => this.save()));
	}

	async save() {
		try {
			await this.plugin.server.rename(this.row.id, this.name);
			const { title } = await this.plugin.server.conversation(this.row.id);
			this.close();
			this.done(title);
		} catch (error) {
			new Notice(errorWords(error));
		}
	}

	onClose() {
		this.contentEl.empty();
	}
}

/**
 * Asks, and deletes a conversation. Returns whether it is gone.
 * @param {import("../main.js").default} plugin
 * @param {Named} row
 */
export async function removeConversation(plugin, row) {
	const isSure = await new Promise((resolve) => new ConfirmModal(plugin.app, row, resolve).open());
	if (!isSure) return false;
	try {
		await plugin.server.cancel(row.id); // what is being written to it would keep it
		plugin.events.trigger("deleting", row.id);
		await plugin.server.remove(row.id);
		return true;
	} catch (error) {
		if (error instanceof ServerError && error.status === 404) return true;
		new Notice(errorWords(error));
		return false;
	}
}

class ConfirmModal extends Modal {
	/**
	 * @param {import("obsidian").App} app
	 * @param {Named} row
	 * @param {(isSure: boolean) => void} answer
	 */
	constructor(app, row, answer) {
		super(app);
		this.row = row;
		this.answer = answer;
		this.isSure = false;
	}

	onOpen() {
		this.setTitle("Delete this conversation?");
		this.contentEl.createEl("p", { text: `“${titleOf(this.row)}” is deleted from elbowroom, for all programs.` });
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Delete").setWarning().onClick(() => {
				this.isSure = true;
				this.close();
			}));
	}

	onClose() {
		this.contentEl.empty();
		this.answer(this.isSure);
	}
}
