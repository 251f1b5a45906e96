// All conversations with their gauges, and the search in what was said.
import { api, setUser, user } from "./api.js";
import { busy, button, empty, enc, h, heading, marked, searchField, time, toast, trouble } from "./dom.js";
import { gauge } from "./gauge.js";
import { loadProviders } from "./settings.js";
import { watch } from "./live.js";
import { textOf } from "./messages.js";

export const ROUTE = "/v1/conversations";
const PHASES = { waiting: "waiting for its turn", loading: "loading the model", prefill: "reading", streaming: "writing", tool: "using a tool", "last words": "ending" };
export const BEHIND = "summarising the older part, while nobody waits";
export const phaseWords = (turn) => turn.doing || (PHASES[turn.phase] ?? turn.phase ?? "running");
// Older versions took what Open WebUI puts around a question about files for its first words.
export const titleOf = ({ title }) => (/^### Task:/.test(title) ? "A question about files" : title || "Untitled");
const EXCERPT = 90, FILTERS = ["agent", "program", "model"];

// Where the program shows the chat, as it has told it; nothing where it has not.
export const openThere = ({ program, url }) => (/^https?:/.test(url ?? "") ? h("a.button.small", { href: url, target: "_blank" }, `Open in ${program}`) : null);

export async function stop(id, pressed) {
	await busy(pressed, async () => {
		await api(`${ROUTE}/${enc(id)}/cancel`, { method: "POST", body: {} });
		toast("Stopped. What was written is kept.");
	});
}

export async function conversationsView({ main, signal, query }) {
	const list = h("ul.cards", { "aria-label": "Conversations" });
	const foot = h("div.foot");
	const state = { search: query.get("q") ?? "", agent: query.get("agent") ?? "", program: query.get("program") ?? "", model: query.get("model") ?? "", before: "", cards: new Map(), turns: new Map(), background: new Set(), round: 0 };
	const search = searchField("Search in all that was said", { value: state.search });
	const answering = filter("Answered by", "agent", "All agents and models"), programs = filter("Begun by", "program", "All programs"), models = filter("Model", "model", "All models");
	api("/v1/models", { signal }).then(({ data }) => answering.offer(data.map(({ id }) => id))).catch(() => {}); // then only all are offered
	loadProviders({ signal, quiet: true }).then((all) => models.offer(all.flatMap(({ models: offered }) => offered.map(({ id }) => id)))).catch(() => {});
	const who = h("input", { id: "who", value: user(), autocomplete: "off", "aria-describedby": "who-help" });
	const whose = h("details.owners", { open: user() !== "" }, h("summary", "Another user’s conversations"),
		h("form.test", { onsubmit: (event) => { event.preventDefault(); setUser(who.value.trim()); load(true); } },
			h("div.field", h("label", { for: "who" }, "User"), who), h("button", "Show")),
		h("p.help", { id: "who-help" }, "As chat programs send it in X-Elbowroom-User. Empty: those without a name."));
	let waiting = 0;
	search.addEventListener("input", () => {
		clearTimeout(waiting);
		waiting = setTimeout(() => { state.search = search.value.trim(); load(true); }, 250);
	});
	main.append(
		heading("Conversations", h("div.find", { role: "search" }, search)),
		h("div.filters", answering.element, programs.element, models.element),
		list, foot, whose);

	// A list that leaves the conversations of which `name` is the one that is chosen; those to choose from come later.
	function filter(label, name, all) {
		const element = h("select", { "aria-label": label, onchange: () => { state[name] = element.value; load(true); } });
		const known = new Set(state[name] ? [state[name]] : []);
		const offer = (ids) => {
			const before = known.size;
			for (const id of ids) known.add(id);
			if (element.children.length && known.size === before) return; // a list that is open stays open
			element.replaceChildren(...["", ...known].map((id) => h("option", { value: id, selected: id === state[name] }, id || all)));
			element.hidden = !known.size;
		};
		offer([]);
		return { element, offer };
	}

	async function load(anew) {
		const round = anew ? ++state.round : state.round;
		if (anew) state.before = "";
		const asked = new URLSearchParams({ q: state.search });
		for (const name of FILTERS) if (state[name]) asked.set(name, state[name]);
		if (state.before) asked.set("before", state.before);
		try {
			const page = await api(`${ROUTE}?${asked}`, { signal });
			if (round !== state.round) return;
			show(page, anew);
			if (state.search) excerpts(page.data, round).catch(() => {});
		} catch (error) {
			if (error.status === 403) whose.open = true;
			if (error.name !== "AbortError" && round === state.round) foot.replaceChildren(trouble(error, () => load(anew)));
		}
	}

	function show(page, anew) {
		programs.offer(page.data.map(({ program }) => program).filter(Boolean));
		const before = state.cards;
		const focused = anew ? document.activeElement?.closest?.("[data-id]")?.dataset.id : null;
		if (anew) Object.assign(state, { cards: new Map(), day: "" });
		const cards = page.data.flatMap((row) => {
			const card = before.get(row.id) ?? conversationCard(row.id);
			card.show(row, state.search);
			card.live(state.turns.get(row.id), state.background.has(row.id));
			state.cards.set(row.id, card);
			const day = dayOf(row.updated);
			const isNew = day !== state.day;
			state.day = day;
			return isNew ? [h("li.day", h("h2", day)), card.element] : [card.element];
		});
		if (anew) list.replaceChildren(...cards); else list.append(...cards);
		if (focused) state.cards.get(focused)?.link.focus();
		state.before = page.next ?? "";
		const only = FILTERS.map((name) => state[name]).filter(Boolean);
		const none = state.search
			? empty("Nothing found", `In no conversation “${state.search}” was said.`)
			: only.length ? empty("Nothing found", `There is no conversation with ${only.join(", ")}.`)
			: empty("No conversation yet", "Once a chat program talks to elbowroom, you see here how full its window is. ", h("a", { href: "#/connect" }, "Connect one"), ".");
		foot.replaceChildren(...(state.cards.size ? [] : [none]), ...(page.has_more ? [button("Show more", () => load(false))] : []));
	}

	// Shows the words around the hit in each conversation found, one after the other, from its last messages.
	async function excerpts(rows, round) {
		for (const { id } of rows) {
			const { data } = await api(`${ROUTE}/${enc(id)}/messages?limit=100&order=desc`, { signal });
			if (round !== state.round) return;
			const wanted = state.search.toLowerCase();
			const text = data.map(({ message }) => textOf(message)).find((each) => each.toLowerCase().includes(wanted));
			if (!text) continue;
			const from = Math.max(0, text.toLowerCase().indexOf(wanted) - EXCERPT);
			const words = text.slice(from, from + 2 * EXCERPT + wanted.length).replace(/\s+/g, " ");
			state.cards.get(id)?.quote(`${from ? "…" : ""}${words}…`, state.search);
		}
	}

	await load(true);
	watch(signal, (turns, changed, background) => {
		Object.assign(state, { turns, background });
		for (const [id, card] of state.cards) card.live(turns.get(id), background.has(id));
		if (changed) load(true);
	});
}

// The day of a moment as a heading.
export function dayOf(seconds, now = new Date()) {
	const day = new Date(seconds * 1000);
	const noon = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate(), 12);
	const ago = Math.round((noon(now) - noon(day)) / 86_400_000);
	const year = day.getFullYear() === now.getFullYear() ? {} : { year: "numeric" };
	return ago === 0 ? "Today" : ago === 1 ? "Yesterday" : day.toLocaleDateString(document.documentElement.lang, { weekday: "long", day: "numeric", month: "long", ...year });
}

export function conversationCard(id) {
	const address = `#/conversations/${enc(id)}`;
	const link = h("a", { href: address, class: "card-title" });
	const about = h("p.about");
	const meter = gauge(null, null);
	const phase = h("span.phase");
	const stopping = button("Stop", () => stop(id, stopping), "small");
	const running = h("div.running", { hidden: true }, phase, stopping);
	const said = h("p.excerpt", { hidden: true });
	const element = h("li.card.conversation", { "data-id": id }, h("div", h("h2", link), about, said), running, meter.element);
	return {
		element, link,
		show(row, search = "") {
			link.replaceChildren(...marked(titleOf(row), search));
			link.setAttribute("href", search ? `${address}?q=${enc(search)}` : address);
			said.hidden = true;
			const count = row.compaction_count;
			about.replaceChildren(...[row.agent || "no agent", row.program ? ` · ${row.program}` : "", " · ", time(row.updated), count ? ` · compacted ${count === 1 ? "once" : `${count} times`}` : ""],
				...(row.name === null ? [" ", withoutId()] : []));
			meter.update(row.context);
		},
		quote(text, search) {
			said.hidden = false;
			said.replaceChildren(...marked(text, search));
		},
		live(turn, isCompacted) {
			running.hidden = !turn && !isCompacted;
			stopping.hidden = !turn;
			if (isCompacted && !turn) phase.textContent = BEHIND;
			element.classList.toggle("is-running", Boolean(turn));
			if (!turn) return;
			phase.textContent = phaseWords(turn);
			stopping.setAttribute("aria-label", `Stop ${link.textContent}`);
			if (turn.fill) meter.update(turn.fill);
		},
	};
}

export const withoutId = () => h("span.badge", { title: "The program sends none: the chat is recognised by its words, and a branch may count as another chat." }, "without a chat id");
