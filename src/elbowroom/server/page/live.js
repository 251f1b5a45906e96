// What is being answered now: asked for about once a second while something runs and the page is seen, rarely otherwise.
import { api } from "./api.js";

const BUSY = 1000, IDLE = 2500;

// Calls `tell` with the running turns by conversation, also with none, with whether others run or a gauge has changed
// since, and with the conversations that are compacted in the background, until the signal says that the view is gone.
export function watch(signal, tell) {
	let timer = 0;
	let asking = false;
	let before = "";
	const next = (delay) => {
		clearTimeout(timer);
		if (!signal.aborted && !document.hidden) timer = setTimeout(look, delay);
	};
	const look = async () => {
		if (asking) return;
		asking = true;
		let delay = IDLE;
		try {
			const { data, background, refilled } = await api("/api/live", { signal, quiet: true });
			if (data.length || background.length) delay = BUSY;
			const turns = new Map(data.map((turn) => [turn.conversation, turn]));
			const now = [...turns.keys()].sort().join() + background.join() + refilled;
			tell(turns, now !== before, new Set(background));
			before = now;
		} catch {
			delay = IDLE * 2;
		}
		asking = false;
		next(delay);
	};
	document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()), { signal });
	signal.addEventListener("abort", () => clearTimeout(timer));
	look();
}
