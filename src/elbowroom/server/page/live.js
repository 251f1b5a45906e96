// What is being answered now: asked for about once a second while something runs and the page is seen, rarely otherwise.
import { api } from "./api.js";

const BUSY = 1000, IDLE = 4000;

// Calls `tell` with the running turns by conversation, also with none, and with whether others run than before, until
// the signal says that the view is gone.
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
			const { data } = await api("/api/live", { signal, quiet: true });
			if (data.length) delay = BUSY;
			const turns = new Map(data.map((turn) => [turn.conversation, turn]));
			const ids = [...turns.keys()].sort().join();
			tell(turns, ids !== before);
			before = ids;
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
