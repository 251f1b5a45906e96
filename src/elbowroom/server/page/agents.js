// Agents, and who prunes for them.
import { api } from "./api.js";
import { busy, button, confirm, empty, h, heading, time, toast, trouble } from "./dom.js";
import { tablePanel } from "./preferences.js";
import { editor } from "./records.js";
import { loadOptions, loadSettings } from "./settings.js";

const PLAIN = { ä: "ae", ö: "oe", ü: "ue", ß: "ss", æ: "ae", ø: "oe", å: "aa", œ: "oe" };
const one = (id) => `/api/agents/${encodeURIComponent(id)}`;

export async function agentsView({ main }) {
  const settings = await loadSettings();
  const options = await loadOptions(settings);
  const list = h("ul.cards", { "aria-label": "Agents" }, options.agents.map(agentCard));
  main.append(
    heading("Agents", h("a.button.primary", { href: "#/agents/+new" }, "New agent")),
    options.agents.length ? list : empty("No agent yet", "An agent is a model with instructions and tools. Chat programs see it as a model of its own."),
    tablePanel("compaction", settings, options, "pruning_agent"));
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
    agent.problem && h("p.trouble", agent.problem),
    agent.instructions && h("p.excerpt", agent.instructions.slice(0, 200)));
}

export async function agentView({ main, id }) {
  const settings = await loadSettings();
  const options = await loadOptions(settings);
  const isNew = id === "+new";
  const agent = isNew ? { provider: options.providers?.()[0]?.[0] ?? "lmstudio" } : options.agents.find((each) => each.id === id);
  if (!agent) throw new Error(`There is no agent ${id}.`);
  const schema = settings.schema.$defs.AgentSettings;
  const leave = (words) => { toast(words); location.hash = "#/agents"; };
  const made = editor({
    main, back: ["#/agents", "Agents"], title: isNew ? "New agent" : agent.name || agent.id,
    form: {
      schema: { ...schema, properties: { name: null, id: null, ...schema.properties } }, root: settings.schema, name: "agents", values: agent, options, isNew, idKey: "id",
      verb: isNew ? "Create agent" : "Save",
      onsubmit: async (patch) => {
        if ((isNew || patch.model || patch.provider) && !(await isWanted({ ...agent, ...patch }, isNew ? "Create" : "Save"))) return false;
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
  else main.append(...await remembered(agent));
}

// Asks the person where an agent would not answer, as with a model that its provider does not have.
async function isWanted({ provider, model }, verb) {
  const { problem } = await api("/api/agents/check", { method: "POST", body: { provider, model } });
  return !problem || confirm("This agent would not answer", problem, `${verb} all the same`);
}

// What an agent remembers, if it can or does, with a button for each memory.
async function remembered({ id, tools }) {
  const query = `?agent=${encodeURIComponent(id)}`;
  const { data, error } = await api(`/api/memories${query}`).catch((failed) => ({ data: [], error: failed }));
  if (!data.length && !tools.some((name) => name.endsWith("_memory"))) return [];
  if (error) return [trouble(error)];
  const title = h("h2", { id: "memories", tabindex: "-1" }, "Memories");
  const none = h("p.about", { hidden: data.length > 0 }, "Nothing is remembered.");
  const list = h("ul.cards", { "aria-labelledby": "memories" }, data.map((memory) => {
    const remove = h("button.danger.quiet.small", { type: "button", "aria-label": `Forget: ${memory.text}`, onclick: async () => {
      if (!(await confirm("Delete this memory?", memory.text, "Delete"))) return;
      await busy(remove, async () => {
        await api(`/api/memories/${memory.id}${query}`, { method: "DELETE" });
        row.remove();
        none.hidden = list.children.length > 0;
        title.focus();
        toast("Deleted.");
      });
    } }, "Forget");
    const row = h("li.card", h("div.card-head", h("p", memory.text), remove), h("p.about", time(memory.saved)));
    return row;
  }));
  return [h("section", title, none, list)];
}

// Fills in the id from the name for as long as nobody has written another.
function nameTheId(form) {
  const [name, id] = ["name", "id"].map((key) => form.fields.find((field) => field.key === key).control);
  let made = "";
  name.addEventListener("input", () => {
    if (id.value !== made) return;
    made = name.value.toLowerCase().replace(/[äöüßæøåœ]/g, (letter) => PLAIN[letter]).normalize("NFKD").replace(/\p{M}/gu, "").replace(/[^a-z0-9._]+/g, "-").replace(/^[-._]+|[-._]+$/g, "");
    id.value = made;
  });
}
