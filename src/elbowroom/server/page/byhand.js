// What a person does about compactions: one with a focus, seen ahead, taken back, its summary changed.
import { api } from "./api.js";
import { act, ask, busy, button, enc, h, number, scrolling, toast } from "./dom.js";

// The form that compacts a conversation; `changed` is called where one was made.
export function compactForm(route, changed) {
	const focus = h("input", { id: "focus", maxlength: "500", autocomplete: "off", placeholder: "Keep the SQL, drop the small talk" });
	const shown = h("div", { role: "status" });
	const send = (more) => api(`${route}/compact`, { method: "POST", body: { focus: focus.value, ...more } });
	const look = async (summary) => shown.replaceChildren(...foreseen(await send({ preview: true, summary }), () => look(true)));
	const compact = h("button.small", "Compact now");
	const form = h("form.fields", { onsubmit: (event) => {
		event.preventDefault();
		busy(compact, async () => {
			const done = await send();
			shown.replaceChildren();
			toast(done.compacted ? `Compacted: ${number(done.before)} to ${number(done.after)} tokens.` : "Nothing could be freed.");
			await changed();
		});
	} }, h("div.field", h("label", { for: "focus" }, "What to keep, what to drop"), focus),
	h("div.actions", act("Preview", () => look(false), "small"), compact), shown);
	return h("details", h("summary", "Compact by hand"), form);
}

function foreseen(seen, write) {
	if (!seen.method) return [h("p.about", `Nothing could be freed: all ${number(seen.before)} tokens have to stay.`)];
	const list = (stays, title) => h("details", h("summary", `${title}: ${number(seen[stays ? "stays" : "goes"].messages)} messages, ${number(seen[stays ? "stays" : "goes"].tokens)} tokens`),
		scrolling(title, h("ol.plain", seen.messages.filter((each) => each.stays === stays).map((each) => h("li", h("strong", each.role), ` ${each.words} `, h("span.about", `${number(each.tokens)} tokens${each.pinned ? ", pinned" : ""}`))))));
	return [h("p", `${seen.summary ? "" : "About "}${number(seen.before)} to ${number(seen.after)} of ${number(seen.window)} tokens. Nothing is changed yet.`),
		list(false, "Would go"), list(true, "Would stay"),
		seen.summary ? h("div.said.summary.boxed", seen.summary) : act("Write the summary too", write, "small"),
		seen.summary ? null : h("p.help", "That asks the pruning agent, which takes as long as a compaction.")].filter(Boolean);
}

// What can be done about the newest compaction that holds.
export function handles(each, route, changed) {
	const undo = act("Undo", async () => {
		const { tokens } = await api(`${route}/compact/undo`, { method: "POST", body: {} });
		toast(`The originals are back: ${number(tokens)} tokens.`);
		await changed();
	}, "small");
	const edit = button("Edit summary", async () => {
		const text = h("textarea", { id: "words", rows: "14", value: each.summary });
		const answer = await ask({ title: "The summary in your words", body: h("div.field", h("label", { for: "words" }, "The model reads it in place of what was removed"), text), focus: text, actions: [["Cancel", "", "quiet"], ["Save", "ok", "primary"]] });
		if (answer) await busy(edit, async () => {
			await api(`${route}/summary`, { method: "PUT", body: { summary: text.value } });
			toast("Saved. The original stays readable.");
			await changed();
		});
	}, "small");
	return h("div.actions", undo, each.summary && edit);
}

// Lets a message never be summarised, or again.
export function pinButton({ id, pinned }, route, changed) {
	return act(pinned ? "Unpin" : "Pin", async () => {
		await api(`${route}/messages/${enc(id)}/pin`, { method: pinned ? "DELETE" : "PUT", body: {} });
		toast(pinned ? "Unpinned." : "Pinned: it is never summarised.");
		await changed();
	}, "small");
}
