// Whether elbowroom answers: looked for again and again while the page is seen, and said on every view when it does not.
import { h } from "./dom.js";

const BEAT = 1000, SLOW = 1500;
let isLost = false, beat = 0;

// Takes in whether a request was answered. A `lost` or `found` event of the window follows when that changes.
export function heard(isThere) {
	if (isThere === !isLost) return;
	isLost = !isThere;
	const place = document.getElementById("lost");
	document.body.classList.toggle("is-old", isLost);
	place.hidden = !isLost;
	place.replaceChildren(...(isLost ? [h("p", h("strong", "Connection lost, looking for it. "), `What stands here is as of ${new Date().toLocaleTimeString()}.`)] : []));
	dispatchEvent(new Event(isLost ? "lost" : "found"));
}

async function look() {
	clearTimeout(beat);
	if (!document.hidden) {
		try {
			await fetch("/page/icon.svg", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(SLOW) });
			heard(true);
		} catch {
			heard(false);
		}
	}
	beat = setTimeout(look, BEAT);
}

export function keepLooking() {
	document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
	look();
}
