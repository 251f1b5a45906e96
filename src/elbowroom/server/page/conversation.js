// One conversation: its gauge, every message as it was, and where its older part became a summary.
import { api, download } from "./api.js";
import { compactForm } from "./byhand.js";
import { compactionDivider } from "./compactions.js";
import { act, ask, busy, button, confirm, enc, facts, h, heading, number, time, toast } from "./dom.js";
import { BEHIND, openThere, phaseWords, stop, titleOf, withoutId } from "./conversations.js";
import { gauge } from "./gauge.js";
import { PAGE, messageList, textOf } from "./messages.js";
import { watch } from "./live.js";
import { searchIn } from "./recall.js";

const MOST_PAGES = 20;

export async function conversationView({ main, signal, id, query }) {
	const route = `/v1/conversations/${enc(id)}`;
	const search = query.get("q") ?? "";
	const freed = (each) => each.before - each.after;
	const jump = (each) => reach(() => messages.list.querySelector(`[data-at="${each.at}"]`));
	let shown = await api(`${route}?limit=${PAGE}&order=desc`, { signal });
	const meter = gauge(shown.context, null);
	meter.element.classList.add("large");
	const phase = h("span.phase");
	const stopping = button("Stop", () => stop(shown.id, stopping), "small");
	const running = h("div.running", { hidden: true }, phase, stopping);
	const told = h("div");
	const jumps = h("div.jumps");
	const messages = messageList({ route, signal, search, compactions: () => shown.compactions, changed: reload,
		divider: (each) => compactionDivider(each, shown.context?.window, route, signal, each === shown.compactions.findLast((one) => !one.undone) && reload) });
	const save = (form) => act(form === "json" ? "Export JSON" : "Export Markdown", () => download(`${route}/export?format=${form}`), "small");
	const remove = button("Delete", async () => {
		if (!(await confirm("Delete this conversation?", "It is deleted from elbowroom. Your chat program keeps its own copy.", "Delete"))) return;
		await busy(remove, async () => {
			await api(route, { method: "DELETE" });
			toast("Deleted.");
			location.hash = "#/conversations";
		});
	}, "danger small");
	const rename = act("Rename", async () => {
		const input = h("input", { id: "title", value: shown.title, maxlength: "200" });
		const body = h("div.field", h("label", { for: "title" }, "Title"), input, h("p.help", "Without one, the first question is the title."));
		if ((await ask({ title: "Rename this conversation", body, focus: input, actions: [["Cancel", "", "quiet"], ["Rename", "ok", "primary"]] })) !== "ok") return;
		await api(route, { method: "PATCH", body: { title: input.value } });
		await reload();
	}, "small");
	const title = heading(titleOf(shown), openThere(shown), rename, save("markdown"), save("json"), remove);
	main.append(h("p.back", h("a", { href: search ? `#/conversations?q=${enc(search)}` : "#/conversations" }, "Conversations")), title,
		h("section.panel", { "aria-label": "Size" }, running, meter.element, told, jumps, compactForm(route, reload), searchIn(route, signal, (found) => reach(() => messages.list.querySelector(`[data-id="${CSS.escape(found)}"]`)))), ...(search ? [hitBar()] : []), messages.element);

	async function show() {
		const { dropped } = await api(`${route}/queue`, { signal });
		title.querySelector("h1").textContent = titleOf(shown);
		meter.update(shown.context);
		const { usage } = shown;
		told.replaceChildren(facts([
			["Agent", shown.agent || "none"],
			["Last used", time(shown.updated)],
			["Messages", number(shown.message_count)],
			["Tokens read", number(usage.input + usage.cache_read + usage.cache_creation)],
			["Tokens written", number(usage.output)],
			["Of these for compactions", usage.pruning?.total ? number(usage.pruning.total) : null],
			["Waiting in the queue", shown.queue_length ? number(shown.queue_length) : null],
			["Not said, since it was stopped", dropped[0] ? dropped.map((each) => textOf(each.message)).join("; ") : null],
			["Chat id", shown.name === null ? withoutId() : null],
		].filter(([, value]) => value !== null)));
		const all = shown.compactions;
		jumps.hidden = !all.length;
		jumps.replaceChildren(h("span.about", all[1] ? `Compacted ${all.length} times:` : "Compacted once:"),
			...all.map((each) => button(`${number(freed(each))} tokens freed`, () => jump(each), "small")));
	}

	// Shows what `find` finds, for which earlier messages are read until it is there.
	async function reach(find) {
		for (let pages = 0; !find() && messages.hasMore() && pages < MOST_PAGES; pages++) if (!(await messages.more(200))) break;
		find()?.scrollIntoView({ block: "center" });
		return find();
	}

	// Steps from one hit of the search to the one before it, the newest first.
	function hitBar() {
		let at;
		const earlier = act("Show the last hit", async () => {
			const before = () => { const all = [...messages.list.querySelectorAll("mark")]; return at ? all[all.indexOf(at) - 1] : all.at(-1); };
			at?.classList.remove("now");
			const found = await reach(before);
			if (found) {
				at = found;
				at.closest("details")?.setAttribute("open", "");
				at.scrollIntoView({ block: "center" });
			} else toast("There is no earlier hit.");
			at?.classList.add("now");
			earlier.textContent = "Earlier hit";
		}, "small");
		addEventListener("shown", () => earlier.click(), { once: true, signal });
		return h("div.hits", { role: "search" }, h("span", `Found: “${search}”`), earlier);
	}

	async function reload() {
		shown = await api(route, { signal });
		await show();
		await messages.refresh();
	}

	await show();
	messages.take(shown.messages);
	const meant = shown.compactions.findLast((each) => freed(each) === +query.get("freed"));
	if (meant) addEventListener("shown", () => jump(meant), { once: true, signal });
	let before = shown.status === "running" ? "" : undefined, hasLooked = false;
	watch(signal, async (turns, changed, background) => {
		const turn = turns.get(shown.id), isCompacted = background.has(shown.id);
		running.hidden = !turn && !isCompacted;
		stopping.hidden = !turn;
		if (isCompacted && !turn) phase.textContent = BEHIND;
		if (turn) {
			phase.textContent = phaseWords(turn);
			if (turn.fill) meter.update(turn.fill);
		}
		const now = turn && `${turn.phase} ${turn.doing ?? ""}`;
		const isNew = changed && hasLooked; // the first look only tells how things are
		hasLooked = true;
		if (now === before && (turn || !isNew)) return;
		before = now;
		const count = shown.compactions.length;
		shown = await api(route, { signal }).catch(() => shown);
		if (turn && shown.compactions.length === count) return;
		await show();
		await messages.refresh();
	});
}
