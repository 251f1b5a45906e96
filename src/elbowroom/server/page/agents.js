// Agents, and who prunes for them.
import { api } from "./api.js";
import { busy, button, empty, h, heading, toast } from "./dom.js";
import { Form } from "./form.js";
import { SECTIONS } from "./hints.js";
import { editor } from "./records.js";
import { loadOptions, loadSettings, saveSettings } from "./settings.js";

const one = (id) => `/api/agents/${encodeURIComponent(id)}`;

export async function agentsView({ main }) {
  const settings = await loadSettings();
  const options = await loadOptions(settings);
  const list = h("ul.cards", { "aria-label": "Agents" }, options.agents.map(agentCard));
  main.append(
    heading("Agents", h("a.button.primary", { href: "#/agents/+new" }, "New agent")),
    options.agents.length ? list : empty("No agent yet", "An agent is a model with instructions and tools. Chat programs see it as a model of its own."),
    compactionPanel(settings, options));
}

function agentCard(agent) {
  const box = h("input", { type: "checkbox", role: "switch", id: `on-${agent.id}`, "aria-label": `${agent.name || agent.id} is offered to clients` });
  box.checked = agent.enabled;
  const words = h("span", { "aria-hidden": "true" }, agent.enabled ? "On" : "Off");
  box.addEventListener("change", () => busy(box, async () => {
    const wanted = box.checked;
    try {
      await api(one(agent.id), { method: "PATCH", body: { enabled: wanted } });
      words.textContent = wanted ? "On" : "Off";
      toast(wanted ? "Offered from the next request on." : "No longer offered.");
    } catch (error) {
      box.checked = !wanted;
      throw error;
    }
  }));
  const facts = [agent.name && agent.id, agent.model, agent.tools.length + agent.mcp.length ? `tools: ${[...agent.tools, ...agent.mcp].join(", ")}` : null].filter(Boolean).join(" · ");
  return h("li.card",
    h("div.card-head", h("h2", h("a.card-title", { href: `#/agents/${encodeURIComponent(agent.id)}` }, agent.name || agent.id)), h("label.switch", box, words)),
    h("p.about", facts),
    agent.instructions && h("p.excerpt", agent.instructions.slice(0, 200)));
}

export function compactionPanel(settings, options) {
  const place = h("section.panel.split", { "aria-labelledby": "compaction-title" });
  const show = (now) => {
    const [title, about] = SECTIONS.compaction;
    const properties = now.schema.$defs.CompactionSettings?.properties ?? {};
    const { pruning_agent: first, ...others } = properties;
    const form = new Form({
      schema: { ...now.schema.$defs.CompactionSettings, properties: first ? { pruning_agent: first, ...others } : others },
      root: now.schema, values: now.values.compaction, name: "compaction", locked: now.locked, options,
      onsubmit: async (patch) => show(await saveSettings({ compaction: patch })),
    });
    const held = place.contains(document.activeElement);
    place.replaceChildren(h("h2", { id: "compaction-title" }, title), h("p.about", about), form.element);
    if (held) form.save.focus();
  };
  show(settings);
  return place;
}

export async function agentView({ main, id }) {
  const settings = await loadSettings();
  const options = await loadOptions(settings);
  const isNew = id === "+new";
  const agent = isNew ? { provider: options.providers?.()[0]?.[0] ?? "lmstudio" } : options.agents.find((each) => each.id === id);
  if (!agent) throw new Error(`There is no agent ${id}.`);
  const schema = settings.schema.$defs.AgentSettings;
  const { name, id: identity, ...others } = schema.properties;
  const leave = (words) => { toast(words); location.hash = "#/agents"; };
  const made = editor({
    main, back: ["#/agents", "Agents"], title: isNew ? "New agent" : agent.name || agent.id,
    form: {
      schema: { ...schema, properties: { name, id: identity, ...others } }, root: settings.schema, name: "agents", values: agent, options, isNew, idKey: "id",
      verb: isNew ? "Create agent" : "Save",
      onsubmit: async (patch) => {
        if (isNew) await api("/api/agents", { method: "POST", body: patch });
        else await api(one(id), { method: "PATCH", body: patch });
        leave(isNew ? "Created. Chat programs see it from now on." : "Saved. It counts from the next request on.");
      },
    },
    remove: !isNew && {
      title: `Delete ${agent.name || agent.id}?`, text: "Chat programs no longer see it. Its conversations are kept.",
      run: async () => { await api(one(id), { method: "DELETE" }); leave("Deleted."); },
    },
  });
  if (isNew) nameTheId(made);
}

// Fills in the id from the name for as long as nobody has written another.
function nameTheId(form) {
  const [name, id] = ["name", "id"].map((key) => form.fields.find((field) => field.key === key).control);
  let made = "";
  name.addEventListener("input", () => {
    if (id.value !== made) return;
    made = name.value.normalize("NFKD").toLowerCase().replace(/[^a-z0-9._]+/g, "-").replace(/^[-._]+|[-._]+$/g, "");
    id.value = made;
  });
}
