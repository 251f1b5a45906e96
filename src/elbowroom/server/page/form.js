// Forms from a JSON schema: one field for each setting, with its errors beside it.
import { fieldOf } from "./fields.js";
import { h } from "./dom.js";
import { hintOf } from "./hints.js";

// What is entered and differs from what was there, as a merge patch; undefined where nothing does.
export class Form {
	constructor({ schema, root, values, name, locked = {}, options = {}, isNew = false, onsubmit, verb = "Save", more = [], marks = false, only = null, idKey = null }) {
		this.fields = [];
		this.isNew = isNew;
		this.said = h("p.form-error", { role: "alert", hidden: true });
		this.save = h("button.primary", { type: "submit" }, verb);
		const context = { root, locked, options, isNew, values, marks };
		const shown = [], rare = [];
		for (const [key, part] of Object.entries(schema.properties ?? {})) {
			if (only && !only.includes(key)) continue;
			const hint = hintOf([name, key]);
			const field = fieldOf({ ...context, schema: part, path: [name, key], key, value: values?.[key], hint, isFixed: key === idKey && !isNew, required: (schema.required ?? []).includes(key) });
			field.element.dataset.key = key;
			this.fields.push(field);
			(hint.rare ? rare : shown).push(field.element);
		}
		const folded = rare.length ? h("details.more", h("summary", "More settings"), h("div.fields", rare)) : null;
		this.element = h("form", { class: isNew ? "form new" : "form", novalidate: true, autocomplete: "off", onsubmit: (event) => { event.preventDefault(); this.submit(onsubmit); } },
			h("div.fields", shown), folded, this.said,
			h("div.actions.save", this.save, more));
		for (const kind of ["input", "change"]) this.element.addEventListener(kind, () => this.mark());
	}

	patch() {
		const changed = this.fields.map((field) => [field.key, field.patch()]).filter(([, value]) => value !== undefined);
		return changed.length ? Object.fromEntries(changed) : undefined;
	}

	// Marks what would be lost if the person went away now.
	mark(isDirty = this.isNew || this.patch() !== undefined) { this.element.classList.toggle("dirty", isDirty); }

	async submit(save) {
		if (this.save.getAttribute("aria-busy") === "true") return;
		const patch = this.patch() ?? {};
		this.clear();
		this.save.setAttribute("aria-busy", "true");
		try {
			if ((await save(patch)) !== false) this.mark(false);
		} catch (error) {
			this.show(error);
		} finally {
			this.save.removeAttribute("aria-busy");
		}
	}

	clear() {
		this.said.hidden = true;
		for (const field of this.fields) field.showError("");
	}

	// Puts each message beside its field and the focus on the first; what has no field here is said below.
	show(error) {
		const left = [];
		let first = null;
		for (const { path, message } of error.fields?.length ? error.fields : [{ path: error.param ?? "", message: error.message }]) {
			const field = this.find(partsOf(path));
			if (!field) left.push(path && error.fields?.length ? `${path}: ${message}` : message);
			else if (field.field.showError(message, field.rest) && (!first || isBefore(field.field, first.field))) first = field;
		}
		this.said.textContent = left.join("\n");
		this.said.hidden = left.length === 0;
		if (first) {
			for (let at = first.field.element; at && at !== this.element; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
			first.field.focus(first.rest);
		} else this.said.scrollIntoView({ block: "nearest" });
	}

	// Finds the field that a path names; it may begin with the names of tables and rows around this form.
	find(parts) {
		for (let start = 0; start < parts.length; start++) {
			const field = this.fields.find((candidate) => candidate.key === parts[start]);
			if (field) return { field, rest: parts.slice(start + 1) };
		}
		return null;
	}
}

const isBefore = (one, other) => Boolean(one.element.compareDocumentPosition(other.element) & Node.DOCUMENT_POSITION_FOLLOWING);

const partsOf = (path) => String(path).split(/[.[\]]+/).filter(Boolean);
