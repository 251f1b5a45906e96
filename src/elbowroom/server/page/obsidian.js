// The vaults of this computer, and elbowroom's own plugin in them.
import { api } from "./api.js";
import { act, confirm, h, named, panel } from "./dom.js";

const ROUTE = "/api/obsidian";

export function vaultsPanel(signal, { command, options }) {
	const list = h("ul.plain.plugins", h("li", "Looking for vaults…"));
	const said = h("div", { role: "status" });
	const show = async () => {
		const { data, problems, agents_vault: used } = await api(ROUTE, { signal });
		list.replaceChildren(...data.map((vault) => row(vault, !used, said, show)));
		if (!data.length) list.append(h("li", "No vault of Obsidian was found on this computer. For one that Obsidian does not list: ", h("code", `${command} obsidian install ~/Notes${options}`)));
		list.append(...problems.map((problem) => h("li", problem)));
	};
	show().catch((error) => list.replaceChildren(h("li", error.message)));
	return panel("Obsidian: our own plugin",
		h("p.about", "Chat, gauge, compactions and queue in Obsidian, with commands in the editor. It is copied into a vault of this computer."),
		list, said);
}

// `free` tells that agents work in no vault yet.
function row(vault, free, said, show) {
	const run = (what, body) => async () => {
		const { changes, notes } = await api(`${ROUTE}/${what}`, { method: "POST", body: { vault: vault.id, ...body() } });
		said.replaceChildren(h("ul.checks", changes.map((line) => h("li", h("code", line)))), ...notes.map((note) => h("p.help", note)));
		await show();
	};
	const [enable, enableField] = check(`enable-${vault.id}`, "Switch it on as well", true);
	const [agents, agentsField] = check(`agents-${vault.id}`, "Let agents with vault tools work in this vault", false);
	const install = named(act(verb(vault), run("install", () => ({ enable: vault.enabled || enable.checked, agents_vault: agents.checked })), vault.installed === null ? "primary" : "small"), `${verb(vault)} in ${vault.name}`);
	const remove = named(act("Remove", async () => {
		if (await confirm(`Remove the plugin from ${vault.name}?`, `Its own settings stay in the vault.${vault.agents ? " Agents do not work in it any more." : ""}`, "Remove")) await run("remove", () => ({ agents_vault: vault.agents }))();
	}, "small"), `Remove from ${vault.name}`);
	const can = !vault.problem && !vault.linked;
	return h("li", h("h3", vault.name), h("p.about", vault.path), h("p", vault.problem ?? state(vault)),
		can && !vault.enabled && enableField, can && free && agentsField,
		can && h("div.actions", (!vault.up_to_date || !vault.enabled || free) && install, vault.installed !== null && remove));
}

function check(id, label, checked) {
	const box = h("input", { type: "checkbox", id, checked });
	return [box, h("p", box, " ", h("label", { for: id }, label))];
}

const verb = ({ installed, up_to_date, enabled }) => (installed === null ? "Install" : !up_to_date ? "Update" : enabled ? "Save" : "Switch on");

function state({ installed, linked, up_to_date, enabled, agents }) {
	if (linked) return "A developer’s link: it is left as it is.";
	if (installed === null) return "Not installed.";
	return `Version ${installed || "unknown"}, ${up_to_date ? "up to date" : "not this elbowroom’s"}, switched ${enabled ? "on" : "off"}.${agents ? " Agents work in this vault." : ""}`;
}
