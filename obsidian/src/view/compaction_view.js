// What a person sees of a compaction: the line where it happened, and what is told while it runs.
import { MarkdownRenderer, Modal, Notice, Setting } from "obsidian";
import { inThousands } from "./gauge.js";
import { safeMarkdown } from "../notes/safe_markdown.js";
import { errorWords } from "../server/server.js";
import { textOf } from "../chat/items.js";

const HIDDEN_AFTER_MS = 6000;
/** @type {Record<string, string>} */
const NO_SUMMARY = { reused: "Another conversation with the same beginning was compacted before, and its summary stands here too." };

/**
 * Returns the line of a compaction, which opens to its summary; the newest one can be taken back.
 * @param {import("./chat_view.js").ChatView} view
 * @param {import("../server/server.js").CompactionRow} compaction
 * @param {boolean} isNewest
 */
export function compactionLine(view, compaction, isNewest) {
	const { before, after, rung, summary, undone, messages_removed: removed } = compaction;
	const line = createEl("details", { cls: "elbowroom-compaction", attr: { "data-at": String(compaction.at) } });
	const words = `Compacted: ${inThousands(before)} to ${inThousands(after)} tokens`;
	line.createEl("summary", { text: undone ? `${words}, taken back` : words });
	line.createDiv({ cls: "elbowroom-quiet", text: removed === null ? "What stands above is kept, though the model reads the summary." : `The model reads this in place of ${removed} messages above, which are all kept.` });
	const text = line.createDiv({ cls: "elbowroom-summary markdown-rendered" });
	line.addEventListener("toggle", () => void MarkdownRenderer.render(view.app, safeMarkdown(summary || NO_SUMMARY[rung] || "There is no summary."), text, "", view), { once: true });
	const buttons = new Setting(line);
	buttons.addButton((button) => button.setButtonText("Show the originals").onClick(() => new OriginalsModal(view, compaction).open()));
	if (isNewest && !undone) buttons.addButton((button) => button.setButtonText("Take back").onClick(() => void view.chat.undo()));
	return line;
}

/** The messages that a summary stands for, word for word. */
class OriginalsModal extends Modal {
	/**
	 * @param {import("./chat_view.js").ChatView} view
	 * @param {import("../server/server.js").CompactionRow} compaction
	 */
	constructor(view, compaction) {
		super(view.app);
		this.chat = view.chat;
		this.compaction = compaction;
	}

	onOpen() {
		this.setTitle("What the summary stands for");
		void this.show();
	}

	async show() {
		try {
			for await (const row of this.rows()) {
				const item = this.contentEl.createDiv({ cls: "elbowroom-original" });
				item.createDiv({ cls: "elbowroom-who", text: `${row.number}. ${row.message.role}` });
				item.createDiv({ cls: "elbowroom-summary mod-verbatim", text: [textOf(row.message), ...(row.message.tool_calls ?? []).map((call) => `${call.function.name} ${call.function.arguments}`)].join("\n") });
			}
		} catch (error) {
			this.contentEl.createDiv({ cls: "elbowroom-problem", text: errorWords(error) });
		}
	}

	/** @returns {AsyncGenerator<import("../server/server.js").MessageRow, void, void>} Those that it removed, the first first. */
	async* rows() {
		const { at, messages_removed: removed } = this.compaction;
		let left = removed ?? Infinity;
		/** @type {string | null} */
		let after = null;
		do {
			const page = /** @type {Awaited<ReturnType<import("../server/server.js").Server["messages"]>>} */ (await this.chat.server.messages(this.chat.id, { limit: 200, ...(after ? { after } : {}) }));
			for (const row of page.data) {
				if (row.created > at || left <= 0) return;
				left -= 1;
				yield row;
			}
			after = page.has_more ? page.next : null;
		} while (after);
	}

	onClose() {
		this.contentEl.empty();
	}
}

/** Tells of compactions in Obsidian's notices: one for each, which changes while it runs. */
export class CompactionNotices {
	/** @type {Notice | null} */
	#open = null;

	/** @param {import("../main.js").default} plugin */
	constructor(plugin) {
		this.plugin = plugin;
	}

	/** @param {import("../server/stream.js").StreamEvent} event */
	hear(event) {
		if (event.type === "whole") new Notice(event.text);
		if (event.type !== "notice" || !this.plugin.preferences.noticesAsPopups) return;
		if (event.kind === "compacting") {
			if (this.#open) this.#open.setMessage(event.text);
			else this.#open = new Notice(event.text, 0);
		} else if (this.#open && (event.kind === "compacted" || event.kind === "not compacted")) {
			this.#open.setMessage(event.text);
			this.end(HIDDEN_AFTER_MS);
		} else if (event.kind === "cut" || event.kind === "truncated") new Notice(event.text);
	}

	/** @param {number} [after] Milliseconds. */
	end(after = 0) {
		const notice = this.#open;
		this.#open = null;
		if (notice) window.setTimeout(() => notice.hide(), after);
	}
}
