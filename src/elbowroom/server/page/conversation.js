// One conversation: its gauge, how it was compacted, and every message as it was.
import { api, download } from "./api.js";
import { busy, button, confirm, empty, h, heading, moment, number, time, toast, trouble, written } from "./dom.js";
import { phaseWords, stop } from "./conversations.js";
import { gauge } from "./gauge.js";
import { WORDS } from "./hints.js";
import { watch } from "./live.js";

export async function conversationView({ main, signal, id }) {
  const route = `/v1/conversations/${encodeURIComponent(id)}`;
  let shown = await api(`${route}?limit=${PAGE}&order=desc`, { signal });
  const meter = gauge(shown.context, null);
  meter.element.classList.add("large");
  const phase = h("span.phase");
  const stopping = button("Stop", () => stop(shown.id, stopping));
  const running = h("div.running", { hidden: true }, phase, stopping);
  const facts = h("dl.facts");
  const timeline = h("ol.timeline");
  const compactions = h("section", { "aria-labelledby": "compactions" }, h("h2", { id: "compactions" }, "Compactions"), timeline);
  const messages = messageList(route, signal, () => shown);
  const save = (form) => button(form === "json" ? "Export JSON" : "Export Markdown", (event) => busy(event.currentTarget, () => download(`${route}/export?format=${form}`)), "quiet");
  const remove = button("Delete", async () => {
    if (!(await confirm("Delete this conversation?", "It is deleted from elbowroom. Your chat program keeps its own copy.", "Delete"))) return;
    await busy(remove, async () => {
      await api(route, { method: "DELETE" });
      toast("Deleted.");
      location.hash = "#/conversations";
    });
  }, "danger quiet");
  const title = heading(shown.title || "Untitled");
  main.append(h("p.back", h("a", { href: "#/conversations" }, "Conversations")), title, running, meter.element, facts, compactions,
    messages.element, h("div.actions.spread", save("markdown"), save("json"), remove));

  function show() {
    title.querySelector("h1").textContent = shown.title || "Untitled";
    meter.update(shown.context);
    const { usage } = shown;
    facts.replaceChildren(...[
      ["Agent", shown.agent || "none"],
      ["Last used", time(shown.updated)],
      ["Messages", number(shown.message_count)],
      ["Tokens read", number(usage.input + usage.cache_read + usage.cache_creation)],
      ["Tokens written", number(usage.output)],
      ["Of these for compactions", usage.pruning?.total ? number(usage.pruning.total) : null],
      ["Waiting in the queue", shown.queue_length ? number(shown.queue_length) : null],
    ].filter(([, value]) => value !== null).map(([name, value]) => h("div", h("dt", name), h("dd", value))));
    timeline.replaceChildren(...shown.compactions.map((each) => compaction(each, shown.context?.window, route, signal)));
    compactions.hidden = !shown.compactions.length;
  }

  show();
  messages.take(shown.messages);
  let before = shown.status === "running" ? "" : undefined;
  watch(signal, async (turns) => {
    const turn = turns.get(shown.id);
    running.hidden = !turn;
    if (turn) {
      phase.textContent = phaseWords(turn);
      if (turn.fill) meter.update(turn.fill);
    }
    const now = turn && `${turn.phase} ${turn.doing ?? ""}`;
    if (now === before) return;
    before = now;
    const count = shown.compactions.length;
    shown = await api(route, { signal }).catch(() => shown);
    if (turn && shown.compactions.length === count) return;
    show();
    await messages.refresh();
  });
}

// A step of the timeline, with the originals one click away.
function compaction(each, window, route, signal) {
  const originals = messageList(route, signal, () => null, each.at);
  const fold = h("details.originals", { ontoggle: () => originals.element.querySelector("li") ?? originals.more() },
    h("summary", "The originals, word for word"), originals.element);
  const rung = each.rung ?? each.method;
  const sizes = [each.before, each.after].map((tokens) => {
    const bar = h("span");
    bar.style.width = `${(tokens / Math.max(each.before, window ?? 0)) * 100}%`;
    return bar;
  });
  const told = [
    WORDS[rung] ?? rung,
    typeof each.seconds === "number" ? `${each.seconds < 10 ? Math.max(.1, each.seconds).toFixed(1) : Math.round(each.seconds)} s` : null,
    each.messages_removed ? `${number(each.messages_removed)} messages became a summary` : null,
    typeof each.kept === "number" ? `${number(each.kept)} ${each.kept === 1 ? "group" : "groups"} kept word for word` : null,
  ].filter(Boolean).join(" · ");
  return h("li",
    h("p.when", h("time", { datetime: new Date(each.at * 1000).toISOString() }, moment(each.at))),
    h("p.freed", h("strong", `${number(each.before - each.after)} tokens freed`), `, ${number(each.before)} to ${number(each.after)}`),
    h("div.sizes", { "aria-hidden": "true" }, sizes),
    h("p.about", told),
    each.summary ? h("details", h("summary", "The summary that stands for it"), h("div.said.summary", each.summary)) : null,
    fold);
}

const PAGE = 100;
const ROLES = { user: "User", assistant: "Assistant", system: "System", tool: "Result of a tool", developer: "System" };

// Messages page by page, the newest first; or from the first to those that were there at a moment.
function messageList(route, signal, conversation, until = Infinity) {
  const list = h("ol.messages");
  const foot = h("div.foot");
  const isWhole = until === Infinity;
  const hidden = isWhole ? h("label.check", h("input", { type: "checkbox", checked: true, onchange: () => self.refresh() }), "Show what no client has seen") : null;
  const element = isWhole
    ? h("section", { "aria-labelledby": "messages" }, h("div.head", h("h2", { id: "messages" }, "Messages"), hidden), foot, list)
    : h("div", list, foot);
  let cursor = "", next = Infinity, count = 0, round = 0;
  const self = {
    element,
    async more(limit = PAGE) {
      const mine = round;
      const query = new URLSearchParams({ limit, hidden: hidden?.firstChild.checked ?? true, order: isWhole ? "desc" : "asc", after: cursor });
      try {
        const page = await api(`${route}/messages?${query}`, { signal });
        if (mine === round) self.take(page);
      } catch (error) {
        if (error.name !== "AbortError") foot.replaceChildren(trouble(error, () => self.more(limit)));
      }
    },
    take(page) {
      const rows = page.data.filter((message) => message.created <= until);
      const before = list.scrollHeight;
      for (const message of rows) {
        list[isWhole ? "prepend" : "append"](messageItem(message), ...dividers(message.created, next));
        next = message.created;
      }
      if (isWhole && cursor) scrollBy(0, list.scrollHeight - before);
      count += rows.length;
      cursor = page.next ?? "";
      const ended = !cursor || rows.length < page.data.length;
      foot.replaceChildren(...(count ? [] : [empty("No message", "Nothing was kept of it.")]), ...(ended ? [] : [button(isWhole ? "Earlier messages" : "Show more", () => self.more())]));
    },
    async refresh() {
      const limit = Math.min(200, count + 20);
      round += 1;
      cursor = "", next = Infinity, count = 0;
      list.replaceChildren();
      await self.more(limit);
    },
  };
  const dividers = (from, to) => (conversation()?.compactions ?? []).filter(({ at }) => at > from && at <= to).map(divider);
  return self;
}

const divider = (each) => h("li.divider",
  h("span", `Compacted here, ${number(each.before)} to ${number(each.after)} tokens. A summary stands for what is above.`));

function messageItem({ message, number: place, created, status, hidden, reasoning, agent, calls = {}, full_output: output }) {
  const marks = [hidden && "not shown to the client", status === "interrupted" && "interrupted", status === "streaming" && "being written"].filter(Boolean);
  return h("li", { class: `message ${message.role === "user" ? "from-user" : ""}` },
    h("p.who", h("span.place", `${place}. `), h("strong", message.role === "assistant" && agent ? agent : ROLES[message.role] ?? message.role), " ", time(created), marks.map((mark) => h("span.badge", mark))),
    reasoning && h("details", h("summary", "Thought"), h("div.said.quiet-text", reasoning)),
    content(message, output),
    (message.tool_calls ?? []).map((call) => h("details", h("summary", "Called ", h("code", written(call.function?.name ?? call.type ?? "a tool")), calls[call.id] && h("span.badge", calls[call.id])), h("pre.said", written(call.function?.arguments ?? "")))));
}

function content({ content: said, role }, output) {
  const text = typeof said === "string" ? said : (said ?? []).map((part) => part.text ?? (part.type === "image_url" ? "[image]" : `[${part.type}]`)).join("\n");
  if (!text) return null;
  const body = h(role === "tool" ? "pre" : "div", { class: "said" }, text.slice(0, 1500));
  const rest = text.length > 1500 && button(`Show all ${number(text.length)} characters`, () => { body.textContent = text; rest.remove(); }, "small");
  const full = output && button("Show the full output", (event) => busy(event.currentTarget, async () => {
    body.textContent = await api(output);
    rest && rest.remove();
    full.remove();
  }), "small");
  return [body, rest, full];
}
