// Fields in which a person picks: a model from those that are there, and which vault tools an agent has.
import { h, number } from "./dom.js";

const STATES = { loaded: "loaded", "not-loaded": "not loaded" };
let count = 0;

// What is known of a model in a few badges.
export function modelBadges({ state, window, max_window: most, family, kind }) {
	return [
		state && h("span", { class: `badge ${state === "loaded" ? "good" : ""}` }, STATES[state] ?? state),
		window && h("span.badge", `window ${number(window)}`), most && most !== window && h("span.badge", `up to ${number(most)}`),
		family && h("span.badge", family), kind === "vlm" && h("span.badge", "sees images")];
}

// A list of models to pick from, and a line for one that is not on it. Returns { control, read, write, focus }.
export function modelPicker(field) {
	const models = field.options[field.hint.options](field.values);
	const own = field.hint.none; // the words for no model of its own
	const group = `pick-${++count}`;
	const text = h("input", { type: "text", name: field.key, spellcheck: "false", autocapitalize: "off", "aria-label": "Another model", placeholder: "Type a model’s ID" });
	const several = new Set(models.map(({ provider }) => provider)).size > 1;
	const row = (value, name, provider, badges) => {
		const id = `${group}-${++count}`;
		const box = h("input", { type: "radio", name: group, id, value, "data-provider": provider ?? null, "aria-describedby": badges?.length ? `${id}-about` : null });
		box.disabled = Boolean(field.lock);
		return { box, element: h("div.pick", box, h("label", { for: id }, name), badges?.length ? h("span.badges", { id: `${id}-about` }, badges) : null) };
	};
	const rows = models.map((model) => row(model.id, model.id, model.provider, [...modelBadges(model), several && h("span.badge", model.provider)].filter(Boolean)));
	if (own) rows.unshift(row("", own));
	const other = row("", "Another model");
	text.addEventListener("input", () => { other.box.checked = true; });
	text.disabled = Boolean(field.lock);
	const control = h("div.pick-list", { role: "radiogroup", "aria-label": field.label }, rows.map(({ element }) => element),
		h("div.pick", models.length ? [...other.element.childNodes] : null, text));
	const chosen = () => rows.find(({ box }) => box.checked);
	// A model of another provider takes the provider with it.
	control.addEventListener("change", () => {
		const provider = chosen()?.box.dataset.provider;
		const select = control.closest("form")?.elements.namedItem("provider");
		if (provider && select && select.value !== provider) select.value = provider;
	});
	const write = (value) => {
		const found = rows.find(({ box }) => box.value === (value ?? "") && (!box.dataset.provider || !field.values?.provider || box.dataset.provider === field.values.provider));
		text.value = found ? "" : value ?? "";
		if (found || value || rows.length) (found ?? (value ? other : rows[0])).box.checked = Boolean(found || value);
	};
	write(field.value);
	return { control, write, read: () => chosen()?.box.value ?? text.value.trim(), focus: () => (chosen()?.box ?? (models.length ? rows[0].box : text)).focus() };
}

// Three presets over the checkboxes of vault tools, which are folded: `boxes` have each one's name, checkbox and words.
export function vaultPresets(boxes, { path, write } = {}, update) {
	const readers = boxes.filter(({ name, about }) => name !== "vault" && !about?.includes("vault.write")).map(({ name }) => name);
	const presets = [["none", "No access", []], ["read", "Read", readers], ["write", "Read and write", ["vault"]], ["some", "Single tools", null]];
	const group = `vault-${++count}`;
	const chosen = () => boxes.filter(({ box }) => box.checked).map(({ name }) => name);
	const rows = presets.map(([value, words, names]) => {
		const box = h("input", { type: "radio", name: group, id: `${group}-${value}`, value });
		box.addEventListener("change", () => {
			if (names) for (const each of boxes) each.box.checked = names.includes(each.name);
			else fold.open = true;
			tell();
			update();
		});
		return { box, names, element: h("span.segment", box, h("label", { for: box.id }, words)) };
	});
	const about = h("p.help");
	const fold = h("details", h("summary", "Single vault tools"));
	const tell = () => {
		const now = chosen();
		const found = rows.find(({ names }) => names && names.length === now.length && names.every((name) => now.includes(name))) ?? rows.at(-1);
		found.box.checked = true;
		const wants = now.length > 0;
		about.replaceChildren(...(wants && !path ? ["Choose the folder of your notes first: ", h("a", { href: "#/settings/vault" }, "Settings, Vault"), "."]
			: found.box.value === "write" && !write ? ["It can only read: changing notes is switched off in ", h("a", { href: "#/settings/vault" }, "Settings, Vault"), "."] : []));
	};
	for (const { box } of boxes) box.addEventListener("change", tell);
	tell();
	return { element: h("div.field", h("span.label", { id: group }, "Notes of the vault"), h("div.segments", { role: "radiogroup", "aria-labelledby": group }, rows.map(({ element }) => element)), about, fold), fold };
}
