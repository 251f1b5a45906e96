// The editor of one row of a list: an agent, a provider, an MCP server.
import { confirm, button, h, heading, busy } from "./dom.js";
import { Form } from "./form.js";

export function editor({ main, back, title, form, remove, actions = [] }) {
	const made = new Form({
		...form,
		more: [
			h("a.button.quiet", { href: back[0], onclick: () => made.mark(false) }, "Cancel"),
			remove && button(remove.verb ?? "Delete", async (event) => {
				const pressed = event.currentTarget;
				if (await confirm(remove.title, remove.text, remove.verb ?? "Delete")) await busy(pressed, async () => { await remove.run(); made.mark(false); });
			}, "danger quiet"),
		],
	});
	main.append(h("p.back", h("a", { href: back[0] }, back[1])), heading(title, ...actions), h("div.panel", made.element));
	return made;
}
