// Starts the page: shows the view that the address names, and keeps the light in the header.
import { agentsView } from "./agents.js";
import { agentView } from "./agent.js";
import { connectView } from "./connect.js";
import { conversationView } from "./conversation.js";
import { conversationsView } from "./conversations.js";
import { confirm, h, heading, put, trouble } from "./dom.js";
import { homeView } from "./home.js";
import { logsView } from "./logs.js";
import { modelsView, rowView, showLight } from "./models.js";
import { peopleView, personView } from "./people.js";
import { preferencesView } from "./preferences.js";
import { keepLooking } from "./presence.js";
import { loadSettings } from "./settings.js";

const providerView = rowView({ table: "providers", definition: "ProviderSettings", key: "id", back: ["#/models", "Models"], what: "provider",
	gone: "Agents that use it have to be changed first." });
const ownView = rowView({ table: "models", definition: "ModelSettings", key: "id", back: ["#/models", "Models"], what: "model settings", needs: true,
	gone: "Its models then have what all have." });
const mcpView = rowView({ table: "mcp_servers", definition: "McpServerSettings", key: "name", back: ["#/settings/mcp_servers", "Settings"], what: "MCP server",
	gone: "Agents that use its tools have to be changed first." });
const VIEWS = [
	[/^home$/, homeView],
	[/^conversations$/, conversationsView], [/^conversations\/(.+)$/, conversationView],
	[/^agents$/, agentsView], [/^agents\/(.+)$/, agentView],
	[/^models$/, modelsView], [/^models\/own\/(.+)$/, ownView], [/^models\/(.+)$/, providerView],
	[/^settings\/mcp\/(.+)$/, mcpView], [/^settings\/people$/, peopleView], [/^settings\/people\/(.+)$/, personView], [/^settings(?:\/(\w+))?$/, preferencesView],
	[/^connect$/, connectView], [/^logs$/, logsView],
];
const main = document.getElementById("main");
let leaving = new AbortController();
let isFirst = true;
let shown = null;

async function show() {
	const [path, query] = (location.hash.replace(/^#\/?/, "") || "home").split("?");
	if (path === "main") return;
	if (location.hash === shown) return;
	if (main.querySelector("form.dirty") && !(await confirm("Leave without saving?", "What you have entered here is not saved.", "Leave"))) {
		history.replaceState(null, "", shown);
		return;
	}
	shown = location.hash;
	const [pattern, view] = VIEWS.find(([known]) => known.test(path)) ?? VIEWS[0];
	leaving.abort();
	leaving = new AbortController();
	const { signal } = leaving;
	markSection(path.split("/")[0]);
	const place = h("div.view");
	main.setAttribute("aria-busy", "true");
	try {
		const named = pattern.exec(path)?.[1];
		await view({ main: place, signal, id: named && decodeURIComponent(named), query: new URLSearchParams(query) });
	} catch (error) {
		if (signal.aborted) return;
		place.replaceChildren(...(error.code === "not_for_members" ? [heading("For owners")] : [heading("That did not work"), trouble(error, () => { shown = null; show(); })]));
	}
	if (signal.aborted) return;
	main.replaceChildren(place);
	main.removeAttribute("aria-busy");
	const title = place.querySelector("h1");
	document.title = `${title?.textContent ?? "elbowroom"} · elbowroom`;
	if (!isFirst) {
		title?.focus({ preventScroll: true });
		scrollTo(0, 0);
	}
	isFirst = false;
	dispatchEvent(new Event("shown"));
}

// Marks where the person is, in the navigation and in the menu that holds a part of it on phones.
function markSection(section) {
	const menu = document.getElementById("more");
	if (menu.matches(":popover-open")) menu.hidePopover();
	for (const link of document.querySelectorAll("nav a, #more a")) {
		put(link, "aria-current", link.hash === `#/${section}` && "page");
	}
	document.querySelector(".more").classList.toggle("is-current", Boolean(menu.querySelector("[aria-current]")));
}

async function keepLight() {
	if (!document.hidden) await showLight();
	setTimeout(keepLight, 15000);
}

document.querySelector(".skip").addEventListener("click", (event) => {
	event.preventDefault();
	(main.querySelector("h1") ?? main).focus();
});
addEventListener("hashchange", show);
addEventListener("found", () => {
	loadSettings({ quiet: true }).catch(() => {});
	showLight();
	if (main.querySelector("form.dirty")) return; // what was entered stays
	shown = null;
	isFirst = true; // the focus stays where the person has it
	show();
});
addEventListener("beforeunload", (event) => { if (document.querySelector("form.dirty")) event.preventDefault(); });
await show();
keepLight();
keepLooking();
loadSettings({ quiet: true }).catch(() => {});
