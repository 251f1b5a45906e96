// How full a window is: a bar with marks where the older part is summarised and where an answer is stopped.

/** @typedef {import("../server/server.js").ContextFill} ContextFill */

/**
 * @param {number} value
 */
export function inThousands(value) {
	return value.toLocaleString("en-GB");
}

/**
 * Returns a share in percent.
 * @param {number} share
 */
export function percent(share) {
	return `${Math.round(share * 100)} %`;
}

/**
 * Works out what a gauge shows.
 * @param {ContextFill | null | undefined} context
 * @returns {{ share: number, state: "unknown" | "calm" | "near" | "full", words: string }}
 */
export function fillOf(context) {
	if (!context || !(context.window > 0)) return { share: 0, state: "unknown", words: "Window not known yet" };
	const { tokens, window, trigger, stop_at: stopAt } = context;
	const state = stopAt && tokens >= stopAt ? "full" : trigger && tokens >= trigger ? "near" : "calm";
	const words = `${percent(tokens / window)} · ${inThousands(tokens)} of ${inThousands(window)} tokens`;
	return { share: Math.min(1, tokens / window), state, words };
}

/** The bar, as an element with the role of a meter. */
export class Gauge {
	/** @param {HTMLElement} parent */
	constructor(parent) {
		this.element = parent.createDiv({ cls: "elbowroom-gauge", attr: { role: "meter", "aria-label": "Fill of the window", "aria-valuemin": "0" } });
		this.bar = this.element.createDiv({ cls: "elbowroom-gauge-bar" });
		this.marks = ["summarised from", "answer stopped at"].map((told) => ({ told, element: this.element.createDiv({ cls: "elbowroom-gauge-mark" }) }));
		this.show(null);
	}

	/** @param {ContextFill | null | undefined} context */
	show(context) {
		const { share, state, words } = fillOf(context);
		this.element.dataset.state = state;
		this.bar.setCssProps({ "--elbowroom-share": String(share) });
		this.element.setAttrs({
			"aria-valuemax": String(context?.window || 1), "aria-valuenow": String(Math.min(context?.tokens ?? 0, context?.window || 1)), "aria-valuetext": words,
		});
		this.element.title = [words, ...this.place(context)].join("\n");
	}

	/**
	 * Puts the marks where they belong; returns what they mean.
	 * @param {ContextFill | null | undefined} context
	 */
	place(context) {
		const places = [context?.trigger, context?.stop_at];
		return this.marks.flatMap(({ told, element }, index) => {
			const at = places[index];
			element.toggle(Boolean(at && context?.window));
			if (!at || !context?.window) return [];
			element.setCssProps({ "--elbowroom-share": String(at / context.window) });
			return [`${told} ${percent(at / context.window)}`];
		});
	}
}
