// What caching and compaction have saved, by day and month, as the store has it.
import { api } from "./api.js";
import { h, number } from "./dom.js";

const DAYS = 7;

// Returns the sums of all days, and the days, the last one first.
export async function savings(signal) {
	const { data, seconds_a_token: each } = await api(`/api/saved?zone=${-new Date().getTimezoneOffset()}`, { signal, quiet: true });
	return { ...summed(data), days: data, each };
}

const summed = (days) => days.reduce((sum, { freed, cached, compactions }) => ({ freed: sum.freed + freed, cached: sum.cached + cached, compactions: sum.compactions + compactions }),
	{ freed: 0, cached: 0, compactions: 0 });

export function savingsPanel({ cached, freed, compactions: count, each, days }) {
	const fact = (value, name, about) => h("div", h("dt", name), h("dd", value), h("dd.help", about));
	return h("dl.saved",
		fact(cached ? number(cached) : "–", "Tokens from the cache", cached ? "The model did not read them again." : "LM Studio does not tell."),
		fact(number(freed), "Tokens freed", count ? `By ${number(count)} ${count === 1 ? "compaction" : "compactions"}.` : "Nothing had to be compacted yet."),
		fact(each && days.length ? duration((cached + freed) * each) : "–", "Reading time saved", each ? "As long as the model would have read them, about." : "Known after some answers."));
}

// The last days and all months, each with its sums.
export function savingsTable({ days, each }) {
	const months = [...new Set(days.map(({ day }) => day.slice(0, 7)))];
	const words = (day, options) => new Date(`${day}T12:00`).toLocaleDateString(document.documentElement.lang, options);
	const row = (name, { freed, cached }) => h("tr", h("th", { scope: "row" }, name), [cached, freed].map((tokens) => h("td", number(tokens))), h("td", each ? duration((cached + freed) * each) : "–"));
	const body = (title, rows) => h("tbody", h("tr", h("th", { scope: "colgroup", colspan: "4" }, title)), rows);
	return h("table.by-day",
		h("thead", h("tr", ["", "From the cache", "Freed", "Reading time"].map((name) => h(name ? "th" : "td", name && { scope: "col" }, name)))),
		body("Days", days.slice(0, DAYS).map((one) => row(words(one.day, { weekday: "short", day: "numeric", month: "short" }), one))),
		body("Months", months.map((month) => row(words(`${month}-01`, { month: "long", year: "numeric" }), summed(days.filter(({ day }) => day.startsWith(month)))))));
}

function duration(seconds) {
	return seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
