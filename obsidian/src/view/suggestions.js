// What is offered while a person writes: notes and folders behind @ and [[, prompts and commands behind a slash.
import { TFile, TFolder } from "obsidian";

const MOST_OFFERS = 8;
const TRIGGER = /(?:^|\s)(@)([^\s@[\]]*)$|(\[\[)([^\]\n]*)$/;

/** @typedef {{ name: string, more: string, choose: () => unknown }} Offer `choose` is called once what was typed is gone. */

export class Suggestions {
	/** @type {Offer[]} */
	#offers = [];
	#chosen = 0;
	/** Where what was typed for it begins. */
	#from = 0;

	/**
	 * @param {import("obsidian").App} app
	 * @param {HTMLTextAreaElement} input
	 * @param {HTMLElement} parent
	 * @param {{ mention: (found: TFile | TFolder) => unknown, prompts: () => Offer[] }} able
	 */
	constructor(app, input, parent, able) {
		this.app = app;
		this.input = input;
		this.able = able;
		this.list = parent.createEl("ul", { cls: "elbowroom-offers", attr: { role: "listbox", "aria-label": "Suggestions", id: `elbowroom-offers-${crypto.randomUUID()}` } });
		this.list.hide();
		input.setAttrs({ "aria-controls": this.list.id, "aria-autocomplete": "list" });
		input.addEventListener("input", () => this.update());
		input.addEventListener("blur", () => this.close());
	}

	get isOpen() {
		return this.#offers.length > 0;
	}

	/** Offers what fits the words before the cursor. */
	update() {
		const before = this.input.value.slice(0, this.input.selectionStart);
		const command = /^\/(\S*)$/.exec(before);
		const [, at, named, brackets, linked] = TRIGGER.exec(before) ?? [];
		const sign = command ? "/" : at ?? brackets;
		const typed = (command?.[1] ?? named ?? linked ?? "").toLowerCase();
		this.#from = before.length - typed.length - (sign?.length ?? 0);
		this.#offers = sign === undefined ? [] : command ? this.able.prompts().filter(({ name }) => name.toLowerCase() !== `/${typed}` && name.toLowerCase().slice(1).includes(typed)).slice(0, MOST_OFFERS) : this.notes(typed);
		this.#chosen = 0;
		this.draw();
	}

	/**
	 * @param {string} typed
	 * @returns {Offer[]}
	 */
	notes(typed) {
		const all = this.app.vault.getAllLoadedFiles().filter((each) => (each instanceof TFile ? each.extension === "md" : each.path !== "/"));
		const fitting = all.flatMap((each) => {
			const name = each.name.toLowerCase();
			const rank = name.startsWith(typed) ? 0 : name.includes(typed) ? 1 : each.path.toLowerCase().includes(typed) ? 2 : 3;
			return rank < 3 ? [{ each, rank, age: each instanceof TFile ? -each.stat.mtime : 0 }] : [];
		});
		fitting.sort((one, other) => one.rank - other.rank || one.age - other.age);
		return fitting.slice(0, MOST_OFFERS).map(({ each }) => ({
			name: each instanceof TFile ? each.basename : `${each.name}/`, more: each.parent && each.parent.path !== "/" ? each.parent.path : "",
			choose: () => {
				if (!(each instanceof TFile || each instanceof TFolder)) return;
				this.insert(each instanceof TFile ? `[[${each.basename}]] ` : `${each.path}/ `);
				this.able.mention(each);
			},
		}));
	}

	draw() {
		this.list.toggle(this.isOpen);
		this.list.replaceChildren(...this.#offers.map(({ name, more }, index) => {
			const row = createEl("li", { cls: "elbowroom-offer", attr: { role: "option", id: `${this.list.id}-${index}`, "aria-selected": String(index === this.#chosen) } });
			row.createSpan({ text: name });
			if (more) row.createSpan({ cls: "elbowroom-quiet", text: more });
			row.addEventListener("mousedown", (event) => {
				event.preventDefault();
				this.choose(index);
			});
			return row;
		}));
		if (this.isOpen) this.input.setAttr("aria-activedescendant", `${this.list.id}-${this.#chosen}`);
		else this.input.removeAttribute("aria-activedescendant");
	}

	/**
	 * Takes a key that belongs to the list. Returns whether it did.
	 * @param {KeyboardEvent} event
	 */
	pressed(event) {
		if (!this.isOpen) return false;
		const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
		if (step) {
			this.#chosen = (this.#chosen + step + this.#offers.length) % this.#offers.length;
			this.draw();
		} else if (event.key === "Enter" || event.key === "Tab") this.choose(this.#chosen);
		else if (event.key === "Escape") this.close();
		else return false;
		event.preventDefault();
		event.stopPropagation();
		return true;
	}

	/** @param {number} index */
	choose(index) {
		const offer = this.#offers[index];
		const { input } = this;
		const end = input.selectionStart;
		input.value = input.value.slice(0, this.#from) + input.value.slice(end);
		input.setSelectionRange(this.#from, this.#from);
		this.close();
		void offer?.choose();
	}

	/**
	 * Writes where the cursor stands.
	 * @param {string} text
	 */
	insert(text) {
		this.input.setRangeText(text, this.input.selectionStart, this.input.selectionEnd, "end");
	}

	close() {
		this.#offers = [];
		this.draw();
	}
}
