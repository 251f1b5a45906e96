// What caching and compaction have saved since the start, from the server's metrics.
import { api } from "./api.js";
import { h, number } from "./dom.js";

const sum = (text, name, label = "") => [...text.matchAll(new RegExp(`^elbowroom_${name}(?:\\{([^}]*)\\})? (\\S+)$`, "gm"))]
	.filter(([, labels]) => (labels ?? "").includes(label))
	.reduce((total, [, , value]) => total + Number(value), 0);

// Returns tokens and seconds; null for what nobody has told, such as a cache that the engine says nothing of.
export async function savings(signal) {
	const text = await api("/metrics", { signal, quiet: true });
	const read = sum(text, "tokens_total", 'kind="input"');
	const cached = sum(text, "tokens_total", 'kind="cache_read"');
	const freed = sum(text, "compaction_freed_tokens_total");
	const waited = sum(text, "time_to_first_token_seconds_sum");
	const seconds = read && waited ? ((cached + freed) * waited) / read : null;
	return { cached: cached || null, freed, count: sum(text, "compactions_total"), seconds, since: sum(text, "start_time_seconds") };
}

export function savingsPanel({ cached, freed, count, seconds }) {
	const fact = (value, name, about) => h("div", h("dt", name), h("dd", value), h("dd.help", about));
	return h("dl.saved",
		fact(cached === null ? "–" : number(cached), "Tokens from the cache", cached === null ? "LM Studio does not tell." : "The model did not read them again."),
		fact(number(freed), "Tokens freed", count ? `By ${number(count)} ${count === 1 ? "compaction" : "compactions"}.` : "Nothing had to be compacted yet."),
		fact(seconds === null ? "–" : duration(seconds), "Reading time saved", seconds === null ? "Known after the first answers." : "As long as the model would have read them, about."));
}

function duration(seconds) {
	return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}
