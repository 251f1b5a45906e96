// How full a window is: a bar with marks where the older part is summarised and where an answer is stopped.
import { h, number, percent } from "./dom.js";

const WORDS = ["summarised from", "answer stopped at"];

export function gauge(fill, about) {
	const bar = h("div.bar-fill");
	const marks = [h("span.mark"), h("span.mark.stop")];
	const track = h("div.gauge", { role: "meter", "aria-label": "Fill of the window", "aria-valuemin": "0" }, bar, marks);
	const numbers = h("p.numbers");
	const element = h("div.gauge-box", track, h("div.under", about, numbers));
	const update = (now) => {
		const known = now && now.window > 0;
		const share = known ? Math.min(1, now.tokens / now.window) : 0;
		bar.style.width = `${share * 100}%`;
		track.dataset.level = !known ? "none" : now.stop_at && now.tokens >= now.stop_at ? "stop" : now.trigger && now.tokens >= now.trigger ? "near" : "calm";
		track.setAttribute("aria-valuemax", known ? now.window : 1);
		track.setAttribute("aria-valuenow", known ? Math.min(now.tokens, now.window) : 0);
		const words = known ? `${percent(now.tokens / now.window)} · ${number(now.tokens)} of ${number(now.window)} tokens` : "Window not known yet";
		track.setAttribute("aria-valuetext", words);
		numbers.textContent = words;
		[now?.trigger, now?.stop_at].forEach((at, place) => {
			marks[place].hidden = !known || !at;
			if (known && at) {
				marks[place].style.left = `${(at / now.window) * 100}%`;
				marks[place].dataset.at = `${WORDS[place]} ${percent(at / now.window)}`;
			}
		});
	};
	update(fill);
	return { element, update };
}
