import { describe, expect, it } from "vitest";
import { Gauge, fillOf } from "../src/view/gauge.js";

const context = (tokens) => ({ tokens, window: 8192, trigger: 6553, stop_at: 7372 });

describe("the gauge", () => {
	it.each([[100, "calm"], [6553, "near"], [7372, "full"], [9000, "full"]])("is with %i tokens %s", (tokens, state) => {
		expect(fillOf(context(tokens)).state).toBe(state);
	});
	it("says to screen readers what it shows, and has its marks", () => {
		const gauge = new Gauge(document.body);
		gauge.show(context(4096));
		expect(gauge.element.getAttribute("aria-valuetext")).toBe("50 % · 4,096 of 8,192 tokens");
		expect(gauge.element.getAttribute("aria-valuenow")).toBe("4096");
		expect(gauge.element.title).toContain("summarised from 80 %");
		expect(gauge.element.title).toContain("answer stopped at 90 %");
		gauge.show(null);
		expect(gauge.element.getAttribute("aria-valuetext")).toBe("Window not known yet");
	});
});
