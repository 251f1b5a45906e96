// The last lines of the log.
import { api } from "./api.js";
import { busy, button, empty, h, heading, trouble, written } from "./dom.js";

export async function logsView({ main, signal }) {
  const place = h("div");
  const again = button("Refresh", () => busy(again, load));
  main.append(heading("Log", again), place);

  async function load() {
    try {
      const { data } = await api("/api/logs?tail=200", { signal });
      place.replaceChildren(data.length ? h("ol.log", { "aria-label": "Lines of the log, newest first" }, data.reverse().map(entry)) : empty("No line", "Nothing was logged yet."));
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
    h("span.log-text", message, told.length ? h("span.log-more", told.map(([key, value]) => ` ${key}=${written(value)}`)) : null));
}
