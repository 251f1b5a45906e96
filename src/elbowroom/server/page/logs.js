// The last lines of the log: filtered, followed while they are written, each with all its fields.
import { api } from "./api.js";
import { empty, facts, h, heading, marked, searchField, trouble, written } from "./dom.js";

const LINES = 500, EVERY = 2000;
const LEVELS = [["", "All lines"], ["warning", "Warnings and errors"], ["error", "Errors"]];
const WEIGHT = { debug: 0, info: 1, warning: 2, error: 3, critical: 3 };

export async function logsView({ main, signal }) {
	const place = h("div");
	const state = { lines: [], open: new Set() };
	const level = h("select", { "aria-label": "Level", onchange: show }, LEVELS.map(([value, words]) => h("option", { value }, words)));
	const words = searchField("Filter by words", { oninput: show });
	const live = h("input", { type: "checkbox", id: "log-live", checked: true, onchange: () => { if (live.checked) load(); } });
	main.append(heading("Log"),
		h("div.toolbar", level, words,
			h("div.check", live, h("label", { for: "log-live" }, "Follow"))), place);

	const isShown = (line) => (WEIGHT[levelOf(line)] ?? 1) >= (WEIGHT[level.value] ?? 0) && (!words.value || JSON.stringify(line).toLowerCase().includes(words.value.toLowerCase()));
	function show() {
		const lines = state.lines.filter(isShown);
		place.replaceChildren(lines.length ? h("ol.log", { "aria-label": "Lines of the log, newest first" }, lines.map((line) => entry(line, state.open, words.value)))
			: state.lines.length ? empty("No such line", "None of the last lines passes the filter.") : empty("No line", "Nothing was logged yet."));
	}

	async function load() {
		try {
			const { data } = await api(`/api/logs?tail=${LINES}`, { signal });
			const last = JSON.stringify(data.at(-1));
			if (last === state.last && state.lines.length === data.length) return;
			Object.assign(state, { last, lines: data.reverse() });
			show();
		} catch (error) {
			if (error.name !== "AbortError") place.replaceChildren(trouble(error, load));
			live.checked = false;
		}
	}

	const follow = async () => {
		if (live.checked && !document.hidden && !place.contains(document.activeElement)) await load();
		if (!signal.aborted) setTimeout(follow, EVERY);
	};
	await load();
	show();
	setTimeout(follow, EVERY);
}

const levelOf = ({ level }) => String(level ?? "info").toLowerCase();

function entry({ time, level, message, ...more }, open, words) {
	const when = typeof time === "number" ? new Date(time * 1000) : new Date(time);
	const told = Object.entries(more).filter(([, value]) => value !== null && value !== "");
	const shown = Number.isNaN(when.getTime()) ? String(time ?? "") : when.toLocaleTimeString(undefined, { hour12: false });
	const id = `${time} ${message}`;
	const line = h("summary", h("span.log-time", shown), h("span.log-level", levelOf({ level })), h("span.log-text", marked(written(message), words)));
	const fields = () => facts([["time", String(time)], ...told].map(([name, value]) => [name, marked(written(value), words)]));
	const entire = h("details", { open: open.has(id) }, line, open.has(id) && fields());
	entire.addEventListener("toggle", () => {
		if (entire.open) open.add(id); else open.delete(id);
		if (entire.open && entire.children.length === 1) entire.append(fields());
	});
	return h("li", { "data-level": levelOf({ level }) }, entire);
}
