// A first message to an agent, whose answer streams on the page.
import { button, h, number, panel, scrolling } from "./dom.js";
import { askOnce } from "./stream.js";

export function tryPanel(agent, signal) {
	const input = h("textarea", { id: "try", rows: 2, maxlength: "8000", placeholder: "Hello, what can you do for me?" });
	const answer = h("div.said");
	const box = scrolling("Answer", answer);
	box.hidden = true;
	const words = h("p.about", { role: "status" });
	const send = h("button.primary", { type: "submit" }, "Send");
	let asking = null;
	const stop = button("Stop", () => asking?.abort());
	stop.hidden = true;
	signal.addEventListener("abort", () => asking?.abort());

	async function ask() {
		if (asking) return;
		asking = new AbortController();
		send.hidden = true;
		stop.hidden = false;
		box.hidden = false;
		answer.textContent = "";
		words.textContent = "Waiting for the first word…";
		try {
			const question = input.value.trim() || input.placeholder;
			const { text, seconds } = await askOnce({ model: agent.id, question: () => question, signal: asking.signal, tell: (said) => {
				words.textContent = said ? "Writing…" : "Thinking…";
				answer.textContent = said;
			} });
			words.textContent = `First word after ${seconds.toFixed(1)} s, ${number(text.length)} characters. Nothing of it is kept.`;
		} catch (error) {
			words.textContent = error.name === "AbortError" ? "Stopped." : error.message;
		} finally {
			box.hidden = !answer.textContent;
			stop.hidden = true;
			send.hidden = false;
			asking = null;
		}
	}

	return panel("Try it", h("p.about", "One message to the agent as it is saved."),
		h("form.fields", { onsubmit: (event) => { event.preventDefault(); ask(); } },
			h("div.field.whole", h("label", { for: "try" }, "Message"), input), h("div.actions", send, stop)), words, box);
}
