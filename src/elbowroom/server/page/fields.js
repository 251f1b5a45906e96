// The fields of forms: each has `element`, `patch()` (undefined: unchanged, null: back to the default), `showError`, `focus`.
import { button, h, named, percent, put } from "./dom.js";
import { hintOf, WORDS } from "./hints.js";
import { modelPicker, vaultPresets } from "./pick.js";

let count = 0;
const touched = (element) => element.dispatchEvent(new Event("input", { bubbles: true }));

export function resolved(schema, root) {
	if (schema.$ref) return { ...resolved(root.$defs[schema.$ref.split("/").pop()], root), ...without(schema, "$ref") };
	const parts = (schema.anyOf ?? []).filter((part) => part.type !== "null");
	if (!schema.anyOf) return schema;
	const nullable = parts.length < schema.anyOf.length;
	if (parts.length === 1) return { ...resolved(parts[0], root), ...without(schema, "anyOf"), nullable };
	if (parts.every((part) => part.type === "string")) return { ...without(schema, "anyOf"), type: "string", nullable };
	const list = parts.find((part) => part.type === "array");
	return { ...without(schema, "anyOf"), ...(list ?? {}), type: list ? "array" : "any", orText: Boolean(list), nullable };
}

const without = (object, key) => Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));

export function fieldOf(given) {
	const schema = resolved(given.schema, given.root);
	const field = { ...given, schema, id: `field-${++count}`, label: given.hint.label ?? schema.title ?? given.key,
		lock: given.locked[given.path.join(".")] };
	return makerOf(field)(field);
}

function makerOf({ schema, hint, value, options, isFixed }) {
	if (isFixed) return fixed;
	if (hint.widget === "secret" || schema.writeOnly || isSecret(value)) return secret;
	if (hint.widget === "choices") return choices;
	if (hint.widget === "model") return model;
	if (hint.widget === "mark") return mark;
	if (hint.options && options[hint.options]) return select;
	if (schema.enum) return select;
	if (schema.type === "boolean") return schema.nullable ? select : check;
	if (schema.type === "integer" || schema.type === "number") return numeric;
	if (schema.type === "string") return text;
	if (schema.type === "array" && (schema.items?.type ?? "string") === "string") return [value ?? []].flat().every(isLine) ? lines : raw;
	if (schema.properties) return group;
	if (schema.type === "object") return rows;
	return raw;
}

const isLine = (item) => item && item === item.trim() && !/[\r\n]/.test(item);
const isSecret = (value) => value !== null && typeof value === "object" && "set" in value;
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// A label, a control, help and a place for the error, tied together for those who cannot see them.
function labelled(field, control, { read, write = (value) => { control.value = value ?? ""; }, focus = () => control.focus(), tell = percentless, inline = false, extra = null,
	isEmpty = (value) => value === "" || value === null }) {
	const error = errorOf(field);
	const help = helpOf(field);
	control.id = field.id;
	control.disabled ||= Boolean(field.lock);
	if (field.required) control.setAttribute("aria-required", "true");
	const describe = () => {
		const ids = [help?.id, error.hidden ? null : error.id].filter(Boolean).join(" ");
		put(control, "aria-describedby", ids);
	};
	const label = h("label", { for: field.id }, field.label, field.hint.unit && h("span.unit", ` (${field.hint.unit})`));
	const element = h("div", { class: `field ${inline ? "inline" : ""} ${field.lock ? "locked" : ""}` },
		inline ? [h("div.check", control, label)] : [label, control], extra, help, error);
	describe();
	const initial = read(); // as the control has it, which may take line breaks out of a value
	const usual = field.schema.default;
	if (field.marks && !field.lock && usual !== undefined && !isSecret(field.value) && !same(field.value ?? null, usual)) element.append(wayBack(element, `Back to ${tell(usual, field)}`, () => {
		write(usual);
		touched(control);
		focus();
	}, field));
	return {
		key: field.key, element, control,
		patch: () => {
			if (field.lock) return undefined;
			const value = read();
			if (field.isNew) return isEmpty(value) || same(value, usual) ? undefined : value;
			if (same(value, initial)) return undefined;
			return field.marks && same(value, usual) ? null : value; // the usual value need not be written
		},
		showError: (message) => {
			say(error, message);
			put(control, "aria-invalid", message && "true");
			describe();
			return true;
		},
		focus,
	};
}

// A value as a person would say it.
const word = (key, value) => WORDS[`${key}.${value}`] ?? WORDS[value] ?? String(value);
const percentless = (value, { key, schema }) => (value === true ? "on" : value === false ? "off" : value === null || value === "" || value.length === 0 ? "empty"
	: schema.enum ? word(key, value) : typeof value === "number" ? value.toLocaleString("en-US") : String(value));

// Marks a value that was changed, with the way back to what it usually is.
function wayBack(element, words, run, field) {
	element.classList.add("changed");
	const row = h("p.way-back", h("span.badge.good", "Changed"), named(button(words, () => { run(); row.remove(); element.classList.remove("changed"); }, "link"), `${words}: ${field.label}`));
	return row;
}

const errorOf = (field) => h("p.error", { id: `${field.id}-error`, hidden: true });

function say(error, message) {
	error.textContent = message;
	error.hidden = !message;
	return true;
}

function helpOf(field) {
	const parts = [field.hint.help ?? field.schema.description ?? ""];
	if (field.lock) parts.unshift(`Set by the ${field.lock}; change it there.`);
	const words = parts.filter(Boolean).join(" ");
	return words ? h("p.help", { id: `${field.id}-help` }, words) : null;
}

function fixed(field) {
	return { key: field.key, element: h("div.field", h("span.label", field.label), h("code", field.value)),
		patch: () => undefined, showError: () => false, focus: () => {} };
}

function text(field) {
	const control = field.hint.widget === "area"
		? h("textarea", { rows: field.hint.rows ?? 4 })
		: h("input", { type: "text", spellcheck: "false", autocapitalize: "off", name: field.key });
	control.value = field.value ?? "";
	return labelled(field, control, { read: () => control.value === "" && field.schema.nullable ? null : control.value });
}

function model(field) {
	const { control, read, write, focus } = modelPicker(field);
	return labelled(field, control, { read, write, focus, tell: () => field.hint.none ?? "none" });
}

// The mark from which on a conversation is compacted, as a slider on a gauge that ends where the answer is stopped.
function mark(field) {
	const { minimum, maximum, default: usual } = field.schema;
	const control = h("input", { type: "range", min: minimum, max: maximum, step: .01, value: field.value ?? usual });
	const words = h("output", { for: field.id });
	const bar = h("span.bar-fill"), stop = h("span.mark.stop");
	stop.style.left = "90%";
	const rail = h("div.threshold", h("div.gauge", { "aria-hidden": "true" }, bar, stop), control);
	const show = () => {
		bar.style.width = `${control.value * 100}%`;
		words.textContent = percent(control.value);
		control.setAttribute("aria-valuetext", `${percent(control.value)} of the window`);
	};
	control.style.left = `calc(${minimum * 100}% - .625rem)`;
	control.style.width = `calc(${(maximum - minimum) * 100}% + 1.25rem)`;
	control.addEventListener("input", show);
	show();
	const made = labelled(field, control, { read: () => Number(control.value), write: (value) => { control.value = value; }, tell: percent });
	control.replaceWith(rail);
	rail.append(control);
	rail.after(words);
	return made;
}

function numeric(field) {
	const usual = field.schema.default;
	const control = h("input", { type: "text", inputmode: field.schema.type === "integer" ? "numeric" : "decimal", class: "short",
		placeholder: usual === undefined || usual === null ? "" : String(usual), value: field.value ?? "" });
	const read = () => {
		const written = control.value.trim();
		return written === "" ? null : Number.isFinite(Number(written)) ? Number(written) : written;
	};
	return labelled(field, control, { read });
}

function check(field) {
	const control = h("input", { type: "checkbox" });
	control.checked = field.value ?? field.schema.default ?? false;
	return labelled(field, control, { read: () => control.checked, write: (value) => { control.checked = value; }, inline: true });
}

function select(field) {
	const { key, schema, hint, options } = field;
	const list = hint.options && options[hint.options]
		? options[hint.options]()
		: schema.type === "boolean" ? [["true", "Yes"], ["false", "No"]] : schema.enum.map((value) => [String(value), word(key, value)]);
	const given = field.value === null || field.value === undefined ? field.isNew && !schema.nullable ? schema.default ?? list[0]?.[0] ?? "" : "" : String(field.value);
	const all = schema.nullable ? [["", "As usual"], ...list] : list;
	if (!all.some(([value]) => value === String(given))) all.push([String(given), `${given} (unknown)`]);
	const control = h("select", { name: field.key }, all.map(([value, words, off]) => h("option", { value, disabled: Boolean(off) && value !== given }, words)));
	control.value = String(given ?? "");
	const read = () => control.value === "" && schema.nullable ? null : schema.type === "boolean" ? control.value === "true" : control.value;
	return labelled(field, control, { read });
}

function lines(field) {
	const given = Array.isArray(field.value) ? field.value : field.value ? [field.value] : [];
	const control = h("textarea", { rows: Math.min(6, Math.max(2, given.length + 1)), spellcheck: "false" });
	control.value = given.join("\n");
	const read = () => {
		const list = control.value.split("\n").map((line) => line.trim()).filter(Boolean);
		if (field.schema.nullable && !list.length) return null;
		return field.schema.orText && list.length === 1 && !Array.isArray(field.value) ? list[0] : list;
	};
	return labelled(field, control, { read, write: (value) => { control.value = (value ?? []).join("\n"); }, isEmpty: (value) => !value?.length });
}

// Checkboxes for what there is to choose; what is chosen and not on the list stays visible.
function choices(field) {
	const known = field.options[field.hint.options](field.values);
	const given = field.value ?? [];
	const names = known.map(([name]) => name);
	const others = given.filter((name) => !names.includes(name));
	const boxes = [...known, ...(field.hint.more ? [] : others.map((name) => [name, name, "not known here"]))].map(([name, label, about], place) => {
		const id = `${field.id}-${place}`;
		const box = h("input", { type: "checkbox", id, value: name, disabled: Boolean(field.lock), "aria-describedby": about ? `${id}-about` : null });
		box.checked = given.includes(name);
		return { name, about, box, row: h("div.choice", box, h("label", { for: id }, label), about && h("span.help", { id: `${id}-about` }, about)) };
	});
	const more = field.hint.more && h("textarea", { rows: 2, id: `${field.id}-more`, spellcheck: "false" });
	if (more) more.value = others.join("\n");
	const error = errorOf(field);
	const isNote = ({ name }) => field.hint.vault && /^vault(\.|$)/.test(name);
	const plain = boxes.filter((each) => !isNote(each)), notes = boxes.filter(isNote);
	const presets = notes.length ? vaultPresets(notes, field.options.vault, () => touched(element)) : null;
	presets?.fold.append(h("div.boxes", notes.map(({ row }) => row)));
	const element = h("fieldset.field", { "aria-describedby": error.id }, h("legend", field.label), presets?.element,
		boxes.length ? h("div.boxes", plain.map(({ row }) => row)) : h("p.help", "There is none yet."),
		more && h("div.field", h("label", { for: more.id }, field.hint.more), more), error);
	const read = () => {
		const chosen = [...boxes.filter(({ box }) => box.checked).map(({ box }) => box.value), ...(more ? more.value.split("\n").map((line) => line.trim()).filter(Boolean) : [])];
		return [...given.filter((name) => chosen.includes(name)), ...chosen.filter((name) => !given.includes(name))];
	};
	return {
		key: field.key, element,
		patch: () => { const value = read(); return (field.isNew ? !value.length : same(value, given)) ? undefined : value; },
		showError: (message) => say(error, message),
		focus: () => (boxes.find(({ box }) => box.checked)?.box ?? boxes[0]?.box ?? more)?.focus(),
	};
}

// A value that can be set, replaced or removed, and never read.
function secret(field) {
	const state = isSecret(field.value) ? field.value : { set: false, from: null };
	const control = h("input", { type: "password", autocomplete: "new-password", spellcheck: "false", hidden: state.set,
		placeholder: "Secret or env:NAME" });
	let removed = false;
	const words = h("span.secret-state");
	const tell = () => {
		words.textContent = removed ? "Will be removed." : !control.hidden ? "" : state.from && state.from !== "literal" ? `Set, from ${state.from}.` : "Set.";
		if (!state.set && state.from) words.textContent = `Not set: ${state.from} holds nothing.`;
		replace.hidden = !state.set || removed || !control.hidden;
		remove.hidden = !state.set || removed;
		undo.hidden = !state.set || !(removed || !control.hidden);
	};
	const change = (hidden, isRemoved) => () => {
		control.hidden = hidden;
		control.value = "";
		removed = isRemoved;
		tell();
		(hidden ? undo.hidden ? replace : undo : control).focus();
		touched(control);
	};
	const act = (words, run) => Object.assign(named(button(words, run, "small"), `${words} ${field.label}`), { disabled: Boolean(field.lock) });
	const replace = act("Replace", change(false, false)), remove = act("Remove", change(true, true)), undo = act("Keep as it is", change(true, false));
	tell();
	const extra = h("div.secret", words, replace, remove, undo);
	return labelled(field, control, { read: () => removed ? null : control.value === "" ? undefined : control.value, extra, isEmpty: (value) => !value });
}

// Names and values, such as variables of the environment; the values may be secrets.
function rows(field) {
	const given = field.value ?? {};
	const secrets = field.hint.widget === "secrets";
	const place = h("div");
	const made = [];
	const add = (key = "", value = "") => {
		const name = h("input", { type: "text", value: key, "aria-label": `${field.label}: ${field.hint.key ?? "Name"}`, placeholder: field.hint.key ?? "Name" });
		const isSet = isSecret(value);
		const item = h("input", { type: secrets ? "password" : "text", autocomplete: "new-password", value: isSet ? "" : value === "" || typeof value === "string" ? value : JSON.stringify(value),
			placeholder: isSet ? "Set; type to replace" : field.hint.item ?? "Value", "aria-label": `${field.label}: ${field.hint.item ?? "Value"}` });
		const line = { name, item, key, was: item.value };
		made.push(line);
		const row = h("div.row", name, item, named(button("Remove", () => {
			made.splice(made.indexOf(line), 1);
			row.remove();
			touched(place);
			more.focus();
		}, "small"), `Remove ${key || "this row"}`));
		place.append(row);
		return name;
	};
	const more = button("Add", () => add().focus(), "small");
	for (const [key, value] of Object.entries(given)) add(key, value);
	const error = h("p.error", { role: "alert", hidden: true });
	const help = helpOf(field);
	const element = h("fieldset.field", { "aria-describedby": error.id }, h("legend", field.label), help, place, more, error);
	const parse = (written) => {
		if (!field.typed) return written;
		try { return JSON.parse(written); } catch { return written; }
	};
	return {
		key: field.key, element,
		patch: () => {
			const changes = {};
			const names = made.map(({ name }) => name.value.trim());
			for (const key of Object.keys(given)) if (!names.includes(key)) changes[key] = null;
			for (const { name, item, key, was } of made) {
				const written = name.value.trim();
				if (!written || (!field.isNew && key === written && item.value === was)) continue;
				const value = item.value === was && key in given ? given[key] : parse(item.value);
				if (field.isNew || !same(value, given[written])) changes[written] = value;
			}
			return Object.keys(changes).length ? changes : undefined;
		},
		showError: (message) => say(error, message),
		focus: () => (made[0]?.name ?? more).focus(),
	};
}

// A table within a table, folded until it is needed.
function group(field) {
	const inner = Object.entries(field.schema.properties).map(([key, schema]) => fieldOf({
		...field, schema, path: [...field.path, key], key, value: field.value?.[key], isFixed: false,
		hint: hintOf([...field.path, key]), required: false }));
	if (field.schema.additionalProperties === true) {
		const others = Object.fromEntries(Object.entries(field.value ?? {}).filter(([key]) => !(key in field.schema.properties)));
		inner.push({ ...rows({ ...field, id: `${field.id}-more`, label: field.hint.more ?? "Others", hint: {}, value: others, typed: true }), key: null });
	}
	const help = helpOf(field);
	const element = h("details.group", h("summary", field.label), help, h("div.fields", inner.map((one) => one.element)));
	const patch = () => {
		const changed = {};
		for (const one of inner) {
			const value = one.patch();
			if (value === undefined) continue;
			if (one.key === null) Object.assign(changed, value); else changed[one.key] = value;
		}
		return Object.keys(changed).length ? changed : undefined;
	};
	const at = (rest) => inner.find((one) => one.key === rest?.[0]) ?? inner.find((one) => one.key === null) ?? inner[0];
	return {
		key: field.key, element, patch,
		showError: (message, rest) => {
			if (!message) { for (const one of inner) one.showError(""); return true; }
			element.open = true;
			return at(rest)?.showError(message, rest?.slice(1));
		},
		focus: (rest) => at(rest)?.focus(),
	};
}

// A kind of value that no field is made for: as JSON.
function raw(field) {
	const control = h("textarea", { rows: 3, spellcheck: "false" });
	control.value = field.value === undefined ? "" : JSON.stringify(field.value, null, 1);
	const read = () => {
		if (!control.value.trim()) return null;
		try { return JSON.parse(control.value); } catch { return field.schema.type === "array" ? {} : control.value; }
	};
	return labelled(field, control, { read });
}
