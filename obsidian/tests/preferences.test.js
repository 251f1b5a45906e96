import { describe, expect, it } from "vitest";
import { DEFAULTS, baseAddress, preferencesFrom } from "../src/settings/preferences.js";

describe("the address", () => {
	it.each([
		["http://127.0.0.1:2345", "http://127.0.0.1:2345"],
		["127.0.0.1:2345", "http://127.0.0.1:2345"],
		[" https://home.example/elbow/v1/ ", "https://home.example/elbow"],
		["http://h:1/v1/v1/chat/completions", "http://h:1"],
		["http://[::1]:2345/v1/models", "http://[::1]:2345"],
		["", ""], ["   ", ""], ["ftp://h", ""], ["javascript:alert(1)", ""], ["http://", ""],
	])("is understood as people paste it: %s", (typed, base) => {
		expect(baseAddress(typed)).toBe(base);
	});
});

describe("preferences", () => {
	it.each([[null], [undefined], ["text"], [[1]], [{ address: 5, noteContext: "everything", seen: [], agent: {} }]])("are as by default where a file holds %j", (data) => {
		expect(preferencesFrom(data)).toEqual(DEFAULTS);
	});
	it("keep what has the right type, and what a newer version has added", () => {
		expect(preferencesFrom({ agent: "writer", noteContext: "note", secret: "x", address: 5, added: { later: 1 } })).toEqual({ ...DEFAULTS, agent: "writer", noteContext: "note", secret: "x", added: { later: 1 } });
	});
});
