// The three steps of a new installation, which tick themselves.
import { h, panel } from "./dom.js";

const STEPS = [
	["Models found", "Start LM Studio", "Start it, load a model, and switch its server on under Developer.", "Look again", "#/models"],
	["An agent", "An agent", "A model with instructions and tools of your choice.", "Make an agent", "#/agents/+new"],
	["A program connected", "A program", "Open WebUI, Obsidian, or any other that speaks to OpenAI.", "Connect one", "#/connect"],
];

// Shows which steps are done; the panel is there while one of them is left, and until the view is gone.
export function firstSteps() {
	const items = STEPS.map(([, title, about, verb, href], place) => h("li.step",
		h("span.tick", { "aria-hidden": "true" }, String(place + 1)),
		h("h3", h("span.title", title), h("span.offscreen")), h("p.about", about), h("a.button.small", { href }, verb)));
	const element = panel("Three steps to the first chat", h("ol.first-steps", items));
	element.hidden = true;
	return {
		element,
		update(done, isNew) {
			if (isNew) element.hidden = false;
			items.forEach((item, place) => {
				item.classList.toggle("done", done[place]);
				item.querySelector(".title").textContent = STEPS[place][done[place] ? 0 : 1];
				item.querySelector(".tick").textContent = done[place] ? "✓" : String(place + 1);
				item.querySelector(".offscreen").textContent = done[place] ? ", done" : ", to do";
			});
			element.querySelector("h2").textContent = done.every(Boolean) ? "All is set up" : "Three steps to the first chat";
		},
	};
}
