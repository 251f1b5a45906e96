// The last lines of the log.
import { api } from "./api.js";
import { busy, button, empty, h, heading, trouble } from "./dom.js";

export async function logsView({ main, signal }) {
  const place = h("div");
  const filter = h("input", { type: "search", id: "filter", placeholder: "Only lines with…", autocomplete: "off", oninput: () => show() });
  const again = button("Refresh", () => busy(again, load));
  let lines = [];
  main.append(heading("Log", again), h("div.toolbar", h("label.offscreen", { for: "filter" }, "Filter lines"), filter), place);

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const found = lines.filter((line) => JSON.stringify(line).toLowerCase().includes(wanted)).reverse();
    place.replaceChildren(found.length ? h("ol.log", { "aria-label": "Lines of the log, newest first" }, found.map(entry))
      : empty("No line", wanted ? "None has this text." : "Nothing was logged yet."));
  }

  async function load() {
    try {
      lines = (await api("/api/logs?tail=200", { signal })).data;
      show();
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(trouble(error, load));
    }
  }
  await load();
}

function entry({ time, level, message, ...more }) {
  const when = typeof time === "number" ? new Date(time * 1000) : new Date(time);
  const told = Object.entries(more).filter(([, value]) => value !== null && value !== "");
  const words = Number.isNaN(when.getTime()) ? String(time ?? "") : when.toLocaleTimeString(undefined, { hour12: false });
  return h("li", { "data-level": String(level ?? "info").toLowerCase() },
    h("span.log-time", words), h("span.log-level", String(level ?? "").toLowerCase()),
    h("span.log-text", message, told.length ? h("span.log-more", told.map(([key, value]) => ` ${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)) : null));
}
