// Which pruning agent to choose: begins the study, shows how far it is, and its table.
import { api } from "./api.js";
import { act, h, number, scrolling, trouble } from "./dom.js";

const ROUTE = "/api/quality", LATER = 2000;
const SHARES = { identifiers: "Identifiers", constraints: "Constraints", newest: "Newest values", told: "Told itself", answered: "Answered", called: "Tool calls" };
const ENDS = { stopped: "Stopped: this was measured until then.", failed: "It has ended early." };

// A part of a form that looks on as long as it is shown.
export function study() {
	const shown = h("div.fields", { role: "status" });
	const draw = (state) => {
		const runs = state.state === "running";
		const change = (method, body) => async () => { draw(await api(ROUTE, { method, body })); };
		shown.replaceChildren(...[
			runs ? act("Stop", change("DELETE"), "small") : act("Which should I choose?", change("POST", {}), "small"),
			runs ? progress(state) : h("p.help", ENDS[state.state] ?? "Compacts written conversations with each loaded model and asks for every fact. It takes minutes, or an hour; chats go first."),
			state.problem && trouble({ message: state.problem }),
			state.lines.length ? table(state.lines) : null, ...Object.entries(state.troubles ?? {}).map(([name, why]) => h("p.help", `${name}: ${why}`)),
			state.advice && h("p", h("strong", state.advice))].filter(Boolean));
		if (runs) setTimeout(look, LATER);
	};
	const look = async () => {
		if (!shown.isConnected) return;
		try { draw(await api(ROUTE, { quiet: true })); } catch (error) { shown.replaceChildren(trouble(error, look)); }
	};
	setTimeout(look);
	return h("details", h("summary", "Compare pruning agents"), shown);
}

function progress({ done, of, seconds_left: left, now }) {
	const rest = left === null ? "the time is known after the first compaction" : left < 60 ? "less than 1 min left" : `about ${Math.ceil(left / 60)} min left`;
	return h("div", h("progress", { value: String(done), max: String(of), "aria-label": "Steps of the study" }), h("p.help", `${now ? `${now}: ` : ""}${rest}`));
}

function table(lines) {
	const cell = (value, show = (each) => `${Math.round(each)} %`) => h("td", value === null ? "–" : show(value));
	return scrolling("What each pruning agent keeps", h("table", h("thead", h("tr", ["Pruning agent", ...Object.values(SHARES), "Made up", "By code", "Seconds", "Tokens"].map((head) => h("th", { scope: "col" }, head)))),
		h("tbody", lines.map((line) => h("tr", h("th", { scope: "row" }, line.pruner), Object.keys(SHARES).map((name) => cell(line[name])),
			...(line.is_control ? ["made_up", "by_code", "seconds", "tokens"].map(() => cell(null)) : [cell(line.made_up, number), cell(line.by_code, (each) => `${each} of ${line.compactions}`), cell(line.seconds, number), cell(line.tokens, number)]))))));
}
