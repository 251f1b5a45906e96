// All conversations with their gauges.
import { api, setUser, user } from "./api.js";
import { busy, button, empty, h, heading, percent, time, toast, trouble } from "./dom.js";
import { gauge } from "./gauge.js";
import { watch } from "./live.js";

const ROUTE = "/v1/conversations";
const PHASES = { waiting: "waiting for its turn", loading: "loading the model", prefill: "reading", streaming: "writing", tool: "using a tool", "last words": "ending" };
export const phaseWords = (turn) => turn.doing || (PHASES[turn.phase] ?? turn.phase ?? "running");

export async function stop(id, pressed) {
  await busy(pressed, async () => {
    await api(`${ROUTE}/${encodeURIComponent(id)}/cancel`, { method: "POST", body: {} });
    toast("Stopped. What was written is kept.");
  });
}

export async function conversationsView({ main, signal }) {
  const list = h("ul.cards", { "aria-label": "Conversations" });
  const foot = h("div.foot");
  const state = { search: "", before: "", cards: new Map(), turns: new Map(), round: 0 };
  const search = h("input", { type: "search", id: "search", maxlength: "400", placeholder: "Search in all that was said", autocomplete: "off" });
  const legend = h("p.legend", { hidden: true });
  const who = h("input", { id: "who", value: user(), autocomplete: "off", "aria-describedby": "who-help" });
  const whose = h("details", { open: user() !== "" }, h("summary", "Another user’s conversations"),
    h("form.test", { onsubmit: (event) => { event.preventDefault(); setUser(who.value.trim()); load(true); } },
      h("div.field", h("label", { for: "who" }, "User"), who), h("button", "Show")),
    h("p.help", { id: "who-help" }, "As chat programs send it in X-Elbowroom-User. Empty: those without a name."));
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.search = search.value.trim(); load(true); }, 250);
  });
  main.append(
    heading("Conversations"),
    h("div.toolbar", { role: "search" }, h("label.offscreen", { for: "search" }, "Search conversations"), search,
      legend),
    list, foot, whose);

  async function load(anew) {
    const round = anew ? ++state.round : state.round;
    if (anew) state.before = "";
    const query = new URLSearchParams({ q: state.search });
    if (state.before) query.set("before", state.before);
    try {
      const page = await api(`${ROUTE}?${query}`, { signal });
      if (round !== state.round) return;
      show(page, anew);
    } catch (error) {
      if (error.status === 403) whose.open = true;
      if (error.name !== "AbortError") foot.replaceChildren(trouble(error, () => load(anew)));
    }
  }

  function show(page, anew) {
    const before = state.cards;
    const focused = anew ? document.activeElement?.closest?.("[data-id]")?.dataset.id : null;
    if (anew) state.cards = new Map();
    const cards = page.data.map((row) => {
      const card = before.get(row.id) ?? conversationCard(row.id);
      card.show(row);
      card.live(state.turns.get(row.id));
      state.cards.set(row.id, card);
      return card.element;
    });
    if (anew) list.replaceChildren(...cards); else list.append(...cards);
    if (focused) state.cards.get(focused)?.link.focus();
    state.before = page.next ?? "";
    explain(page.data.find((row) => row.context)?.context.thresholds);
    const none = state.search
      ? empty("Nothing found", `In no conversation “${state.search}” was said.`)
      : empty("No conversation yet", "As soon as a chat program talks to elbowroom, you see here how full its window is. ", h("a", { href: "#/connect" }, "Connect one"), ".");
    foot.replaceChildren(...(state.cards.size ? [] : [none]), ...(page.has_more ? [button("Show more", () => load(false))] : []));
  }

  function explain(marks) {
    legend.hidden = !marks;
    if (marks) legend.replaceChildren(h("span.legend-mark"), `${percent(marks.trigger)} compacted`, h("span.legend-mark.stop"), `${percent(marks.stop)} answer stopped`);
  }

  await load(true);
  watch(signal, (turns) => {
    const changed = [...turns.keys()].some((id) => !state.turns.has(id)) || [...state.turns.keys()].some((id) => !turns.has(id));
    state.turns = turns;
    for (const [id, card] of state.cards) card.live(turns.get(id));
    if (changed) load(true);
  });
}

function conversationCard(id) {
  const link = h("a", { href: `#/conversations/${encodeURIComponent(id)}`, class: "card-title" });
  const about = h("p.about");
  const meter = gauge(null, about);
  const phase = h("span.phase");
  const stopping = button("Stop", () => stop(id, stopping), "small");
  const running = h("div.running", { hidden: true }, phase, stopping);
  const element = h("li.card.conversation", { "data-id": id }, h("div.card-head", h("h2", link), running), meter.element);
  return {
    element, link,
    show(row) {
      link.textContent = row.title || "Untitled";
      const count = row.compaction_count;
      about.replaceChildren(row.agent || "no agent", " · ", time(row.updated), count ? ` · compacted ${count === 1 ? "once" : `${count} times`}` : "");
      this.row = row;
      meter.update(row.context);
    },
    live(turn) {
      running.hidden = !turn;
      element.classList.toggle("is-running", Boolean(turn));
      if (!turn) return;
      phase.textContent = phaseWords(turn);
      stopping.setAttribute("aria-label", `Stop ${link.textContent}`);
      if (turn.fill) meter.update(turn.fill);
    },
  };
}
