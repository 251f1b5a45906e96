// All settings in sections: a form for each table of the schema, a list for each list of tables, and a search.
import { button, empty, enc, h, heading, searchField } from "./dom.js";
import { resolved } from "./fields.js";
import { Form } from "./form.js";
import { SECTIONS } from "./hints.js";
import { loadOptions, loadSettings, saveSettings } from "./settings.js";
import { study } from "./study.js";

const ELSEWHERE = ["agents", "providers", "mcp_servers"];
const ORDER = ["compaction", "memory", "tool_output", "vault", "mcp_servers", "store"];
const LAST = "server";
const FIRST = { compaction: ["pruning_agent", "threshold_ratio", "notices"] };

export async function preferencesView({ main, id }) {
	const settings = await loadSettings();
	const options = await loadOptions(settings);
	const tables = Object.keys(settings.schema.properties).filter((name) => !ELSEWHERE.includes(name) && resolved(settings.schema.properties[name], settings.schema).properties);
	const names = [...tables, "mcp_servers"].sort((one, other) => place(one) - place(other));
	const panels = names.map((name) => (name === "mcp_servers" ? mcpPanel(settings) : tablePanel(name, settings, options, { first: FIRST[name] })));
	const search = searchField("Find a setting", { oninput: () => find(panels, search.value, none) });
	const none = empty("No such setting", "None has these words.");
	none.hidden = true;
	const chips = h("div.chips", { role: "group", "aria-label": "Sections of the settings" }, names.map((name, at) => button(SECTIONS[name]?.[0] ?? name, () => show(panels[at]), "small")));
	main.append(heading("Settings", h("div.find", { role: "search" }, search)),
		chips, ...panels, none, h("p.about", "Kept in ", h("code", settings.path), "; a change there counts, too."));
	const asked = panels[names.indexOf(id)];
	if (asked) addEventListener("shown", () => show(asked), { once: true });
}

const place = (name) => (name === LAST ? Infinity : ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);

function show(panel) {
	panel.scrollIntoView({ block: "start" });
	panel.querySelector("h2").focus({ preventScroll: true });
}

// Leaves the fields that have all the words in their name, key or help, and the sections that have some.
function find(panels, words, none) {
	const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
	const has = (element, more = "") => wanted.every((word) => `${element.textContent} ${more}`.toLowerCase().includes(word));
	for (const panel of panels) {
		const all = has(panel.querySelector("h2"));
		let count = 0;
		for (const field of panel.querySelectorAll("[data-key]")) {
			field.hidden = !all && !has(field, field.dataset.key);
			count += field.hidden ? 0 : 1;
			if (!field.hidden && wanted.length) field.closest("details.more")?.setAttribute("open", "");
		}
		for (const more of panel.querySelectorAll("details.more")) more.hidden = !more.querySelector("[data-key]:not([hidden])");
		panel.hidden = !all && !count;
	}
	none.hidden = panels.some((panel) => !panel.hidden);
}

// The form of a table; the fields of the keys `first` come first, with `only` no others.
export function tablePanel(name, settings, options, { first = [], only = null, title, about } = {}) {
	const panel = h("section.panel.split", { "aria-labelledby": `title-${name}` });
	const more = name === "compaction" && study();
	const draw = (now) => {
		const schema = resolved(now.schema.properties[name], now.schema);
		const [named, told] = SECTIONS[name] ?? [schema.title ?? name, ""];
		const ordered = Object.fromEntries([...first, ...Object.keys(schema.properties)].map((key) => [key, schema.properties[key]]));
		const form = new Form({
			schema: { ...schema, properties: ordered }, root: now.schema, values: now.values[name], name, locked: now.locked, options, only, marks: true,
			onsubmit: async (patch) => draw(await saveSettings({ [name]: patch })),
		});
		const held = panel.contains(document.activeElement);
		const head = h("h2", { id: `title-${name}`, tabindex: "-1" }, title ?? named);
		panel.replaceChildren(h("div", head, h("p.about", about ?? told), name === LAST && people(now.values.server.token)), more ? h("div", form.element, more) : form.element);
		if (held) head.focus({ preventScroll: true });
	};
	draw(settings);
	return panel;
}

// The one place that leads to people, for those who have a token to tell them apart.
const people = ({ set }) => h("p.about", { "data-key": "people" }, set ? h("a", { href: "#/settings/people" }, "People with a token each") : "With a token, people can have one each.");

function mcpPanel(settings) {
	const servers = settings.values.mcp_servers ?? [];
	const rows = servers.map((server) => h("li",
		h("a", { href: `#/settings/mcp/${enc(server.name)}` }, server.name),
		h("span.about", ` ${server.url || (server.command ?? []).join(" ")}`), server.enabled === false && h("span.badge", "off")));
	return h("section.panel.split", { "aria-labelledby": "title-mcp" },
		h("div", h("h2", { id: "title-mcp", tabindex: "-1" }, "MCP servers"), h("p.about", "Servers of tools that agents may use.")),
		h("div.fields", rows.length ? h("ul.plain", rows) : h("p.about", "None yet."),
			h("div", h("a.button", { href: "#/settings/mcp/+new" }, "Add server"))));
}
