// Providers: whether they answer, their models, and where each window's size is known from.
import { act, empty, enc, h, heading, number, percent, toast, trouble } from "./dom.js";
import { WORDS } from "./hints.js";
import { modelBadges } from "./pick.js";
import { loadOptions, loadProviders, loadSettings, saveSettings } from "./settings.js";
import { editor } from "./records.js";

// The light of the header: what can be told of all providers in a few words.
export async function showLight() {
	const [element, text] = ["light", "light-text"].map((id) => document.getElementById(id));
	let state = "off", words = "No provider answers";
	try {
		const providers = await loadProviders({ quiet: true });
		const up = providers.filter(({ reachable }) => reachable);
		const loaded = up.flatMap(({ models }) => models).filter((model) => model.state === "loaded").length;
		if (up.length) {
			state = up.length === providers.length ? "on" : "part";
			const named = up.map(({ id, kind }) => (kind === "lmstudio" ? "LM Studio" : id)).join(", ");
			words = loaded ? `${named}, ${loaded} loaded` : named;
			if (state === "part") words += `; ${providers.length - up.length} down`;
		} else if (providers.length === 1) words = `${WORDS[providers[0].kind] ?? providers[0].id} does not answer`;
	} catch (error) {
		words = error.status === 401 ? "Token needed" : "elbowroom does not answer";
	}
	element.dataset.state = state;
	text.textContent = words;
}

export async function modelsView({ main }) {
	const place = h("div.view");
	const again = act("Check again", show);
	main.append(heading("Models", again, h("a.button.primary", { href: "#/models/+new" }, "Add provider")), place);
	async function show() {
		try {
			const providers = await loadProviders();
			const settings = await loadSettings();
			const own = settings.values.models ?? [];
			place.replaceChildren(...(providers.length ? providers.map((each) => provider(each, own)) : [empty("No provider", "Add the server that runs your models.")]), ownPanel(own));
			showLight();
		} catch (error) {
			place.replaceChildren(trouble(error, show));
		}
	}
	await show();
}

function provider({ id, kind, base_url: address, reachable, error, models, machines }, own) {
	const state = reachable ? "on" : "off";
	return h("section.panel.provider", { "aria-label": id },
		h("div.card-head",
			h("h2", h("span.dot", { "data-state": state, "aria-hidden": "true" }), id, h("span.offscreen", reachable ? ", answers" : ", does not answer")),
			h("a.button.small.quiet", { href: `#/models/${enc(id)}`, "aria-label": `Edit ${id}` }, "Edit")),
		machines
			? h("ul.plain.machines", { "aria-label": `Machines of ${id}` }, machines.map(machineRow))
			: h("p.about", `${WORDS[kind] ?? kind} at `, h("code", address), reachable ? " answers." : " does not answer."),
		error && h("p.trouble", error),
		models.length ? h("ul.plain.models", { "aria-label": `Models of ${id}` }, models.map((model) => modelRow(model, id, own))) : reachable && h("p.about", "It offers no model."));
}

// One of several machines: whether it answers, and how full the windows of its models are.
const machineRow = ({ base_url: address, reachable, error, models }) => h("li",
	h("span.dot", { "data-state": reachable ? "on" : "off", "aria-hidden": "true" }), h("code", address),
	h("span.badges", h("span.badge", reachable ? "answers" : "left alone"), models.map((model) => h("span.badge", `${model.id}: ${number(model.held)} of ${number(model.window)} held${model.waiting ? `, ${model.waiting} waiting` : ""}`))),
	error && h("p.trouble", error));

function modelRow(model, provider, own) {
	const row = own.find(({ id }) => id === model.own_settings);
	const name = `${provider}/${model.id}`;
	const isNamed = row && [model.id, name].some((each) => each.toLowerCase() === row.id.toLowerCase());
	const href = isNamed ? linkTo(row.id) : `${linkTo("+new")}?id=${enc(name)}`;
	return h("li", h("strong", model.id), h("span.badges", modelBadges(model), row && ownBadges(row)),
		model.kind !== "embedding" && h("a.button.small.quiet", { href, "aria-label": `Own settings of ${model.id}` }, "Own settings"),
		row && !isNamed && h("p.help", "Set for ", h("a", { href: linkTo(row.id) }, row.id)),
		model.window_source && h("p.help", `Window known from ${model.window_source}`));
}

const linkTo = (id) => `#/models/own/${enc(id)}`;

// What a row of [[models]] says, in a few badges.
const ownBadges = ({ threshold_ratio: ratio, pruning_agent: pruner, recall, advertised_window: told }) => [
	ratio && h("span.badge", `compacted from ${percent(ratio)}`), pruner && h("span.badge", `pruned by ${pruner === "same" ? "itself" : pruner}`),
	recall && h("span.badge", `recall: ${recall}`), told && h("span.badge", `advertised as ${number(told)}`)].filter(Boolean);

// All rows of [[models]], also those that fit no model of now.
const ownPanel = (own) => h("section.panel.provider", { "aria-labelledby": "title-models" },
	h("div.card-head", h("h2", { id: "title-models" }, "Own settings"),
		h("a.button.small.quiet", { href: linkTo("+new") }, "Add")),
	own.length ? h("ul.plain.models", { "aria-label": "Own settings" }, own.map((row) => h("li", h("a", { href: linkTo(row.id) }, row.id), h("span.badges", ownBadges(row)))))
		: h("p.about", "None: all have what stands under Compaction in the settings."));

// The editor for a row of a list in the settings: of providers, or of MCP servers.
export function rowView({ table, definition, key, back, what, gone, needs = false }) {
	return async ({ main, id, query }) => {
		const settings = await loadSettings();
		const isNew = id === "+new";
		const row = isNew ? Object.fromEntries(query) : (settings.values[table] ?? []).find((each) => each[key] === id);
		if (!row) throw new Error(`There is no ${what} ${id}.`);
		const leave = (hash) => { location.hash = hash; };
		const put = (named, value) => saveSettings({ [table]: { [named]: value } });
		editor({
			main, back, title: isNew ? `New ${what}` : id,
			form: {
				schema: settings.schema.$defs[definition], root: settings.schema, name: table, values: row, isNew, idKey: key, options: needs ? await loadOptions(settings) : {},
				verb: isNew ? "Add" : "Save",
				onsubmit: async (patch) => {
					if (isNew && !patch[key]) throw Object.assign(new Error(""), { fields: [{ path: key, message: "This is needed." }] });
					if (isNew && (settings.values[table] ?? []).some((each) => each[key] === patch[key])) throw Object.assign(new Error(""), { fields: [{ path: key, message: "There is one of this name." }] });
					await put(isNew ? patch[key] : id, patch);
					leave(back[0]);
				},
			},
			remove: !isNew && { title: `Delete ${id}?`, text: gone, run: async () => { await put(id, null); toast("Deleted."); leave(back[0]); } },
		});
	};
}
