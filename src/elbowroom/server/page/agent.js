// One agent: its form, a first message to it, what it remembers, and its copies.
import { api, download } from "./api.js";
import { act, busy, confirm, enc, h, toast } from "./dom.js";
import { memoriesPanel } from "./memories.js";
import { editor } from "./records.js";
import { loadOptions, loadSettings } from "./settings.js";
import { tryPanel } from "./try.js";

const NEW = "#/agents/+new";
const one = (id) => `/api/agents/${enc(id)}`;
const LETTERS = { ä: "ae", ö: "oe", ü: "ue", ß: "ss", æ: "ae", ø: "oe", å: "aa", œ: "oe", ł: "l", đ: "d", þ: "th", ð: "d" };
let imported = null;

export async function agentView({ main, id, query, signal }) {
	const settings = await loadSettings();
	const options = await loadOptions(settings);
	const isNew = id === "+new";
	const like = isNew ? beginning(query, options) : null;
	const agent = like ?? options.agents.find((each) => each.id === id);
	if (!agent) throw new Error(`There is no agent ${id}.`);
	const schema = settings.schema.$defs.AgentSettings;
	const leave = (words) => { toast(words); location.hash = "#/agents"; };
	const made = editor({
		main, back: ["#/agents", "Agents"], title: isNew ? "New agent" : agent.name || agent.id,
		actions: isNew ? [] : [
			h("a.button.small", { href: `${NEW}?like=${enc(id)}` }, "Duplicate"),
			act("Export", () => download(`${one(id)}/toml`), "small")],
		form: {
			schema: { ...schema, properties: { name: null, id: null, model: null, instructions: null, ...schema.properties } }, root: settings.schema, name: "agents", values: agent, options, isNew, idKey: "id",
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
	else main.append(...[agent.enabled ? tryPanel(agent, signal) : null, await memoriesPanel(agent)].filter(Boolean));
}

// What a new agent begins with: a copy of another, what was imported, or a model that is loaded.
function beginning(query, { agents, models }) {
	const found = agents.find(({ id }) => id === query.get("like"));
	const copied = found ? { ...found, name: `${found.name || found.id} copy`, id: "" } : query.has("imported") ? imported : null;
	imported = null;
	const usual = models().find(({ state }) => state === "loaded") ?? models()[0];
	const given = copied ?? { provider: usual?.provider ?? "lmstudio", model: usual?.id };
	const free = (id, count = 2) => (agents.some((each) => each.id === id) ? free(`${id.replace(/-\d+$/, "")}-${count}`, count + 1) : id);
	return copied ? { ...given, id: free(given.id || idOf(given.name)) } : given;
}

// Reads an agent from a file, and opens it in the form of a new one, so that it is seen before it is made.
export function importButton() {
	const file = h("input.offscreen", { type: "file", accept: ".toml", onchange: () => busy(file, async () => {
		const [chosen] = file.files;
		file.value = "";
		if (!chosen) return;
		imported = await api("/api/agents/toml", { method: "POST", body: { toml: await chosen.text() } });
		location.hash = `${NEW}?imported=${Date.now()}`;
	}) });
	return h("label.button", "Import", file);
}

// Asks the person where an agent would not answer, as with a model that its provider does not have.
async function isWanted({ provider, model }, verb) {
	const { problem } = await api("/api/agents/check", { method: "POST", body: { provider, model } });
	return !problem || confirm("This agent would not answer", problem, `${verb} all the same`);
}

const idOf = (name) => name.toLowerCase().replace(/[^\0-\x7f]/g, (letter) => LETTERS[letter] ?? letter).normalize("NFKD").replace(/\p{M}/gu, "")
	.replace(/[^a-z0-9._]+/g, "-").replace(/^[-._]+|[-._]+$/g, "");

// Fills in the id from the name for as long as nobody has written another.
function nameTheId(form) {
	const [name, id] = ["name", "id"].map((key) => form.fields.find((field) => field.key === key).control);
	let made = id.value && id.value === idOf(name.value) ? id.value : "";
	name.addEventListener("input", () => {
		if (id.value !== made) return;
		made = idOf(name.value);
		id.value = made;
	});
}
