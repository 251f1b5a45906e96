// What a model makes of a text, shown while it streams; nothing changes in the note before it is accepted.
import { Component, MarkdownRenderer, Modal, Notice, Setting } from "obsidian";
import { isOpen, putInPlace, withEdgesOf } from "./editor_commands.js";
import { DRAW_MS } from "../view/message_view.js";
import { partsOfChange, takenText } from "./diff.js";
import { followLinks, safeMarkdown } from "./safe_markdown.js";
import { writable } from "./saving.js";
import { errorWords, isAbort } from "../server/server.js";
import { streamChat } from "../server/stream.js";

export class PreviewModal extends Modal {
	#text = "";
	/** @type {import("./diff.js").Part[]} What the whole text changes, once it is there. */
	#parts = [];
	#how = "";
	#drawn = new Component();
	/** @type {AbortController | null} */
	#stopping = null;
	/** @type {number | null} */
	#drawLater = null;
	/** @type {import("obsidian").EventRef | null} */
	#unloading = null;

	/**
	 * @param {import("../main.js").default} plugin
	 * @param {import("./editor_commands.js").Task} task
	 * @param {import("./editor_commands.js").Place} place
	 */
	constructor(plugin, task, place) {
		super(plugin.app);
		this.plugin = plugin;
		this.task = task;
		this.place = place;
	}

	onOpen() {
		this.setTitle(this.task.name);
		this.modalEl.addClass("elbowroom-preview");
		this.#unloading = this.plugin.events.on("unload", () => this.close());
		if (this.task.asksHow) {
			new Setting(this.contentEl).setName("How").setDesc("What you want, such as a shorter text or another language. It may stay empty.").addText((text) => {
				text.onChange((value) => { this.#how = value.trim(); });
				text.inputEl.setAttr("aria-label", "How");
				text.inputEl.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) void this.run(); });
			});
		}
		this.state = this.contentEl.createDiv({ cls: "elbowroom-quiet", attr: { role: "status" } });
		this.shown = this.contentEl.createDiv({ cls: "elbowroom-result markdown-rendered", attr: { tabindex: "0", role: "region", "aria-label": "Preview" } });
		followLinks(this.app, this.shown);
		this.raw = this.contentEl.createEl("details", { cls: "elbowroom-raw", attr: { open: "" } });
		this.raw.createEl("summary", { text: "As it will be written" });
		this.written = this.raw.createEl("pre", { attr: { dir: "auto", tabindex: "0" } });
		this.list = this.contentEl.createEl("ul", { cls: "elbowroom-parts", attr: { "aria-label": "Changes" } });
		new Setting(this.contentEl)
			.addButton((button) => { this.again = button.setButtonText("Try again").onClick(() => this.run()); })
			.addButton((button) => { this.stopper = button.setButtonText("Stop").onClick(() => this.stop()); })
			.addButton((button) => { this.copier = button.setButtonText("Copy").onClick(() => this.copy()); })
			.addButton((button) => { this.inserter = button.setButtonText("Insert anyway").onClick(() => this.insert()); })
			.addButton((button) => { this.accepter = button.setButtonText("Accept").setCta().onClick(() => this.accept()); });
		this.inserter?.buttonEl.hide();
		void this.run();
	}

	async run() {
		this.#stopping?.abort();
		const { signal } = this.#stopping = new AbortController();
		this.#text = "";
		this.showParts([]);
		let end = "";
		this.say("Waiting for the first word…", true);
		this.draw();
		try {
			// A chat whose name begins with "local:" is kept nowhere.
			for await (const event of streamChat(this.plugin.server, { model: await this.model(), messages: this.messages() }, { conversation: `local:${crypto.randomUUID()}`, signal })) {
				signal.throwIfAborted();
				if (event.type === "text") {
					if (!this.#text) this.say("Writing…", true);
					this.#text += event.text;
					this.drawSoon();
				} else if (event.type === "notice" || event.type === "whole") this.say(event.text, true);
				else if (event.type === "end" && event.reason === "length") end = "The answer reached the most tokens that it may have, so its end is missing.";
			}
			this.say(this.#text.trim() ? end : "The model answered nothing. Try again.", false);
			if (!this.place.isBefore && this.#text.trim()) this.showParts(partsOfChange(this.place.text, withEdgesOf(this.place.text, this.#text)));
		} catch (error) {
			if (signal !== this.#stopping?.signal) return;
			this.say(isAbort(error) ? "Stopped." : errorWords(error), false);
		}
		this.draw();
	}

	/** Ends the answer, and shows at once what came of it. */
	stop() {
		this.#stopping?.abort();
		this.say("Stopped.", false);
		this.draw();
	}

	async model() {
		return this.plugin.preferences.agent || (await this.plugin.server.models())[0]?.id || "";
	}

	/** @returns {import("../server/server.js").ChatMessage[]} */
	messages() {
		const how = this.#how ? `\n\nThe person wants: ${this.#how}` : "";
		return [{ role: "user", content: `${this.task.order}${how}\n\n<selected_text path="">\n${this.place.text}\n</selected_text>` }];
	}

	/**
	 * @param {string} words
	 * @param {boolean} isRunning
	 */
	say(words, isRunning) {
		this.state?.setText(words);
		this.stopper?.setDisabled(!isRunning);
		this.again?.setDisabled(isRunning);
		this.copier?.setDisabled(isRunning || !this.#text);
		this.accepter?.setDisabled(isRunning || !this.#text.trim());
	}

	drawSoon() {
		if (!this.#text) return;
		this.#drawLater ??= window.setTimeout(() => {
			this.#drawLater = null;
			this.draw();
		}, DRAW_MS);
	}

	/** The text as it will be written: what the model wrote, without the parts that the person leaves. */
	get result() {
		if (this.#parts.length) return takenText(this.#parts);
		return this.place.isBefore ? this.#text : withEdgesOf(this.place.text, this.#text);
	}

	/**
	 * Shows each part that changes, to be taken or left; a text that is new as a whole has none.
	 * @param {import("./diff.js").Part[]} parts
	 */
	showParts(parts) {
		const changes = parts.filter(({ before, after }) => before !== after);
		this.#parts = parts.length > 1 ? parts : [];
		this.list?.replaceChildren(...(this.#parts.length ? changes.map((part, index) => this.partRow(part, index + 1)) : []));
	}

	/**
	 * @param {import("./diff.js").Part} part
	 * @param {number} number
	 */
	partRow(part, number) {
		const row = createEl("li", { cls: "elbowroom-part" });
		const label = row.createEl("label");
		const box = label.createEl("input", { type: "checkbox" });
		box.checked = true;
		label.createSpan({ text: `Accept change ${number}` });
		box.addEventListener("change", () => {
			part.isTaken = box.checked;
			this.draw();
		});
		if (part.before.trim()) row.createEl("del", { text: part.before.trim(), attr: { dir: "auto" } });
		if (part.after.trim()) row.createEl("ins", { text: part.after.trim(), attr: { dir: "auto" } });
		return row;
	}

	draw() {
		const { shown } = this;
		if (!shown) return;
		const text = this.#text ? this.result : "";
		this.written?.setText(text);
		this.#drawn.unload();
		const drawn = this.#drawn = new Component();
		drawn.load();
		const next = createDiv();
		void MarkdownRenderer.render(this.app, safeMarkdown(text), next, "", drawn).catch(() => next.setText(text)).then(() => {
			if (drawn === this.#drawn) shown.replaceChildren(...next.childNodes);
		});
	}

	async accept() {
		const text = await writable(this.app, this.result, this.place.isBefore ? "" : this.place.text);
		if (text === null) return;
		if (putInPlace(this.place, text)) {
			this.close();
			return;
		}
		const isHere = isOpen(this.place);
		this.inserter?.buttonEl.toggle(isHere);
		this.say(`The note has changed there meanwhile, so nothing was put in. Copy the text${isHere ? ", or insert it where the cursor stands" : ""}.`, false);
	}

	async insert() {
		const text = await writable(this.app, this.result.trim());
		if (text === null) return;
		const { editor } = this.place;
		const at = editor.getCursor("to");
		editor.transaction({ changes: [{ from: at, text }] });
		this.close();
	}

	async copy() {
		await navigator.clipboard.writeText(this.result);
		new Notice("Copied.");
	}

	onClose() {
		this.#stopping?.abort();
		this.#stopping = null;
		if (this.#unloading) this.plugin.events.offref(this.#unloading);
		this.#drawn.unload();
		if (this.#drawLater !== null) window.clearTimeout(this.#drawLater);
		this.contentEl.empty();
	}
}
