// All other settings: a form for each table of the schema, a list for each list of tables.
import { h, heading } from "./dom.js";
import { Form } from "./form.js";
import { SECTIONS } from "./hints.js";
import { resolved } from "./fields.js";
import { loadOptions, loadSettings, saveSettings } from "./settings.js";

const ELSEWHERE = ["agents", "providers", "mcp_servers", "compaction"];
const ORDER = ["server", "vault", "mcp_servers", "memory", "tool_output", "store"];

export async function preferencesView({ main }) {
  const settings = await loadSettings();
  const options = await loadOptions(settings);
  const tables = Object.keys(settings.schema.properties).filter((name) => !ELSEWHERE.includes(name) && resolved(settings.schema.properties[name], settings.schema).properties);
  const sections = [...tables, "mcp_servers"].sort((one, other) => place(one) - place(other));
  main.append(heading("Settings"), h("p.about", "Kept in ", h("code", settings.path), "; a change there counts, too."),
    ...sections.map((name) => (name === "mcp_servers" ? mcpPanel(settings) : tablePanel(name, settings, options))));
}

const place = (name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);

// The form of a table; the field of the key `first` comes first.
export function tablePanel(name, settings, options, first) {
  const panel = h("section.panel.split", { "aria-labelledby": `title-${name}` });
  const show = (now) => {
    const schema = resolved(now.schema.properties[name], now.schema);
    const [title, about] = SECTIONS[name] ?? [schema.title ?? name, ""];
    const form = new Form({
      schema: { ...schema, properties: { ...(first && { [first]: null }), ...schema.properties } }, root: now.schema, values: now.values[name], name, locked: now.locked, options,
      onsubmit: async (patch) => show(await saveSettings({ [name]: patch })),
    });
    const held = panel.contains(document.activeElement);
    panel.replaceChildren(h("h2", { id: `title-${name}` }, title), h("p.about", about), form.element);
    if (held) form.save.focus();
  };
  show(settings);
  return panel;
}

function mcpPanel(settings) {
  const servers = settings.values.mcp_servers ?? [];
  const rows = servers.map((server) => h("li",
    h("a", { href: `#/settings/mcp/${encodeURIComponent(server.name)}` }, server.name),
    h("span.about", ` ${server.url || (server.command ?? []).join(" ")}`), server.enabled === false && h("span.badge", "off")));
  return h("section.panel.split", { "aria-labelledby": "title-mcp" },
    h("h2", { id: "title-mcp" }, "MCP servers"), h("p.about", "Servers of tools that agents may use."),
    h("div.fields", rows.length ? h("ul.plain", rows) : h("p.about", "None yet."),
      h("div", h("a.button", { href: "#/settings/mcp/+new" }, "Add server"))));
}
