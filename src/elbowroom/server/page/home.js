// Home: the room that each loaded model has left, what runs now, and the first steps on a new installation.
import { api } from "./api.js";
import { ROUTE, conversationCard } from "./conversations.js";
import { empty, enc, h, heading, number, panel, searchField } from "./dom.js";
import { gauge } from "./gauge.js";
import { watch } from "./live.js";
import { loadAgents, loadProviders } from "./settings.js";
import { savings, savingsPanel, savingsTable } from "./savings.js";
import { firstSteps } from "./steps.js";
import { windowButton } from "./window.js";

const RECENT = 5, LOOK_AGAIN = 3000;

export async function homeView({ main, signal }) {
	const steps = firstSteps();
	steps.element.classList.add("owners");
	const models = h("div.models-home");
	const saved = h("div"), byDay = h("div");
	const days = h("details", h("summary", "By day and month"), byDay);
	const running = h("ul.cards", { "aria-label": "Running now" }), recent = h("ul.cards", { "aria-label": "Last used" });
	const runningPart = h("section", { hidden: true }, h("h2", "Running now"), running);
	const recentPart = h("section", { hidden: true }, h("div.head", h("h2", "Last used"), h("a", { href: "#/conversations" }, "All conversations")), recent);
	const savedPart = panel("Saved", saved, days);
	savedPart.hidden = true;
	const state = { rows: [], agents: [], loaded: [], isUp: false, turns: new Map(), told: null, background: new Set(), cards: new Map(), gauges: new Map() };
	const store = h("p.warning", { role: "status", hidden: true });
	main.append(heading("Home", searchBox()), store, steps.element, models, runningPart, recentPart, savedPart);

	async function look(hasChanged) {
		const nothing = () => null;
		const [page, agents, providers, told, health] = await Promise.all([
			api(`${ROUTE}?limit=20`, { signal }), loadAgents().catch(() => []),
			loadProviders({ signal, quiet: true }).catch(() => []), hasChanged ? savings(signal).catch(nothing) : state.told, api("/health", { signal }).catch(nothing)]);
		store.textContent = health?.store?.note ?? "";
		store.hidden = !store.textContent;
		const up = providers.filter(({ reachable }) => reachable);
		Object.assign(state, { rows: page.data, agents, isUp: up.length > 0,
			loaded: up.flatMap(({ id, kind, models: offered }) => offered.filter((model) => model.state === "loaded" && model.window && model.kind !== "embedding").map((model) => ({ ...model, provider: id, isStudio: kind === "lmstudio" }))) });
		const done = [state.isUp, agents.length > 0, page.data.length > 0];
		steps.update(done, !page.data.length);
		savedPart.hidden = !told || !page.data.length;
		if (told && hasChanged) {
			state.told = told;
			days.hidden = !told.days.length;
			saved.replaceChildren(savingsPanel(told));
			byDay.replaceChildren(savingsTable(told));
		}
		show();
		return done.every(Boolean);
	}

	function show() {
		showModels();
		const ids = [...new Set([...state.turns.keys(), ...state.rows.map(({ id }) => id)])];
		const before = state.cards;
		state.cards = new Map();
		const placed = [[], []];
		for (const id of ids) {
			const turn = state.turns.get(id);
			if (!turn && placed[1].length >= RECENT) continue;
			const card = before.get(id) ?? conversationCard(id);
			const row = state.rows.find((each) => each.id === id);
			card.show(row ?? { title: turn.title, agent: turn.agent, updated: turn.began, context: turn.fill });
			card.live(turn, state.background.has(id));
			state.cards.set(id, card);
			placed[turn ? 0 : 1].push(card.element);
		}
		[running, recent].forEach((list, place) => {
			const same = list.children.length === placed[place].length && placed[place].every((element, at) => list.children[at] === element);
			if (!same) list.replaceChildren(...placed[place]);
			list.parentElement.hidden = !placed[place].length;
		});
	}

	function showModels() {
		const names = state.loaded.map(({ provider, id, window }) => `${provider}/${id} ${window}`);
		for (const [name, card] of state.gauges) if (!names.includes(name)) { card.element.remove(); state.gauges.delete(name); }
		state.loaded.forEach((model, place) => {
			if (!state.gauges.has(names[place])) {
				state.gauges.set(names[place], modelCard(model, () => look().catch(() => {})));
				models.append(state.gauges.get(names[place]).element);
			}
			state.gauges.get(names[place]).show(...chatOf(model, state));
		});
		if (!state.loaded.length) models.replaceChildren(h("section.panel.center", empty(state.isUp ? "No model is loaded" : "No server of models answers",
			state.isUp ? "Load one in LM Studio, or just chat: that loads it." : "Start LM Studio and its server.")));
		else models.querySelector(".center")?.remove();
	}

	const again = async () => {
		let isDone = false;
		try { isDone = document.hidden ? false : await look(); } catch (error) { if (error.name === "AbortError") return; }
		if (!signal.aborted) setTimeout(again, isDone ? LOOK_AGAIN * 5 : LOOK_AGAIN);
	};
	await look(true);
	setTimeout(again, LOOK_AGAIN);
	watch(signal, (turns, changed, background) => {
		Object.assign(state, { turns, background });
		show();
		if (changed) look(true).catch(() => {});
	});
}

function searchBox() {
	const search = searchField("Find what was said", { enterkeyhint: "search" });
	return h("form.find", { role: "search", onsubmit: (event) => { event.preventDefault(); location.hash = `#/conversations?q=${enc(search.value.trim())}`; } }, search);
}

// The chat whose fill is shown for a model: the one that runs there, else the one used last; and its row.
function chatOf({ provider, id, window }, { rows, agents, turns }) {
	const isHere = (model) => model === id || model === `${provider}/${id}`;
	const answers = (name) => name === `${provider}/${id}` || agents.some((agent) => agent.id === name && agent.provider === provider && isHere(agent.model));
	for (const turn of turns.values()) if (isHere(turn.model) && turn.fill) return [turn.fill, rows.find((row) => row.id === turn.conversation), turn];
	const found = rows.find((row) => row.context?.window === window && answers(row.agent));
	return [found?.context ?? { tokens: 0, window }, found, null];
}

function modelCard(model, changed) {
	const { id, window, family } = model, more = windowButton(model, changed);
	const room = h("p.room"), about = h("p.about"), chat = h("p.about");
	const meter = gauge(null, chat);
	meter.element.classList.add("large");
	const element = h("section.panel.model-card", { "aria-label": id },
		h("div", h("h2", id), h("p.about", [family, `window of ${number(window)} tokens`].filter(Boolean).join(" · "))),
		h("div", room, about, more), meter.element);
	return {
		element,
		show(fill, row, turn) {
			meter.update(fill);
			const free = Math.max(0, (fill.trigger || fill.window) - fill.tokens), left = fill.turns_left;
			room.textContent = !row && !turn ? "All free" : typeof left !== "number" ? `${number(free)} tokens left`
				: left < 1 ? "Full" : `About ${left > 99 ? "100 or more" : left} ${left === 1 ? "turn" : "turns"} left`;
			about.textContent = !row && !turn ? "No chat of this model is among the last ones."
				: free ? `${typeof left === "number" ? `${number(free)} tokens ` : ""}until the older part is summarised` : "The older part is summarised before the next answer.";
			if (more) more.hidden = !(typeof left === "number" && left < 1);
			const title = row?.title || turn?.title;
			chat.replaceChildren(...(row || turn ? [turn ? "Running: " : "Last chat: ", h("a", { href: `#/conversations/${enc(row?.id ?? turn.conversation)}` }, title || "Untitled")] : []));
		},
	};
}
