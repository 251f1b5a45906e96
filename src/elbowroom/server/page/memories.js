// What an agent remembers, with a button for each memory.
import { api } from "./api.js";
import { busy, button, confirm, enc, h, named, time, toast, trouble } from "./dom.js";

// Returns the section where the agent can remember or does; null otherwise.
export async function memoriesPanel({ id, tools }) {
	const query = `?agent=${enc(id)}`;
	const { data, error } = await api(`/api/memories${query}`).catch((failed) => ({ data: [], error: failed }));
	if (!data.length && !tools.some((name) => name.endsWith("_memory"))) return null;
	if (error) return trouble(error);
	const title = h("h2", { id: "memories", tabindex: "-1" }, "Memories");
	const none = h("p.about", { hidden: data.length > 0 }, "Nothing is remembered.");
	const list = h("ul.cards", { "aria-labelledby": "memories" }, data.map((memory) => {
		const remove = named(button("Forget", async () => {
			if (!(await confirm("Delete this memory?", memory.text, "Delete"))) return;
			await busy(remove, async () => {
				await api(`/api/memories/${memory.id}${query}`, { method: "DELETE" });
				row.remove();
				none.hidden = list.children.length > 0;
				title.focus();
				toast("Deleted.");
			});
		}, "danger small"), `Forget: ${memory.text}`);
		const row = h("li.card", h("div.card-head", h("p", memory.text), remove), h("p.about", time(memory.saved)));
		return row;
	}));
	return h("section", title, none, list);
}
