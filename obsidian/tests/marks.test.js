import { readFileSync } from "node:fs";
import { App } from "obsidian-test-mocks/obsidian";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Chat } from "../src/chat/chat.js";
import { asShown, itemOf } from "../src/chat/items.js";
import { KeptMarks, addMark, helpFor, isOfQuestion } from "../src/chat/marks.js";
import { finish, serverAt, serving, sse, until, word } from "./support.js";

let server;
let chat;
afterEach(() => { chat?.close(); server?.close(); vi.restoreAllMocks(); });

const told = (kind, text, done = true) => ({ type: "notice", kind, text, done, data: {} });
const chunk = (kind, description, done = true) => ({ choices: [{ delta: { content: "" } }], event: { type: "status", data: { description, done } }, elbowroom: { kind } });
const marksOf = (...all) => all.reduce((marks, each) => { addMark(marks, each); return marks; }, []);
const note = '<vault_note path="Projects/Long plan.md">\nText\n</vault_note>\n\nWhy?';

/** Every kind of notice that elbowroom has, as its own source names them. */
const KINDS = [.../kind: Literal\[([^\]]*)\]/.exec(readFileSync("../src/elbowroom/agents/answer.py", "utf8"))[1].matchAll(/"([^"]+)"/g)].map(([, kind]) => kind);
/** What the model did not get, or the person will not have. */
const LOSSES = ["not compacted", "tight", "cut", "truncated", "left out", "images", "tools shortened", "results cut", "results shortened"];

describe("the marks of a message", () => {
	it.each(KINDS.filter((kind) => kind !== "waited"))("hold every notice that arrives: %s", (kind) => {
		expect(marksOf(told(kind, "It happened."))).toEqual([{ kind, text: "It happened.", isOpen: false }]);
	});
	it("say what can be done wherever something was lost, and nothing where not", () => {
		expect(KINDS.filter((kind) => helpFor({ kind }) !== "")).toEqual(LOSSES);
		expect(helpFor({ kind: "length" })).toContain("its end is missing");
	});
	it.each([
		["compacting", "compacted"], ["compacting", "not compacted"], ["loading", "loaded"], ["remembering", "remembered"], ["tool call", "tool result"], ["store", "store"],
	])("have what was opened by %s in the place of it once %s has come", (opening, closing) => {
		expect(marksOf(told(opening, "It begins...", false), told(opening, "Half of it...", false), told(closing, "It is done."))).toEqual([{ kind: closing, text: "It is done.", isOpen: false }]);
	});
	it("keep that something was waited for, though it is over", () => {
		expect(marksOf(told("waiting", "A title is being written."), told("waited", "The model is free."))).toEqual([{ kind: "waiting", text: "A title is being written.", isOpen: false }]);
	});
	it("lose what was told while the model read, once it answers", () => {
		expect(marksOf(told("reading", "Reading 900 tokens, about 9 s left", false), told("reading", "Reading 900 tokens", false), told("reading", ""))).toEqual([]);
	});
	it("join two sentences about the same loss", () => {
		expect(marksOf(told("tight", "Long."), told("tight", "Short."), told("cut", "End.")).map(({ text }) => text)).toEqual(["Long.\nShort.", "End."]);
	});
	it.each([
		[told("images", "No vision."), true], [told("results cut", "Long plan is too large to be shown whole: about 9 tokens became 4."), true],
		[told("results cut", "Results of vault_read are too large to be shown whole."), false], [told("compacted", "Long plan"), false],
	])("are the question's where it is about that: %j", (event, isIt) => {
		expect(isOfQuestion(note, event)).toBe(isIt);
	});
	it("stay at their messages, also when these are read again", () => {
		const marked = (item, ...kinds) => Object.assign(item, { marks: kinds.map((kind) => ({ kind, text: "", isOpen: false })) });
		const before = [marked(itemOf("user", "Hi"), "images"), marked({ ...itemOf("assistant", "Part"), id: "a" }, "cut"), itemOf("user", "Hi")];
		const kept = [{ ...itemOf("user", "Hi"), id: "u" }, { ...itemOf("assistant", "Part and more"), id: "a" }];
		expect(asShown(kept, before).map(({ marks }) => marks.map(({ kind }) => kind))).toEqual([["images"], ["cut"]]);
		expect(asShown([{ ...itemOf("assistant", "Half an answer"), id: "b" }], [marked(itemOf("assistant", "Half an"), "cut")])[0].marks).toHaveLength(1);
		expect(asShown([{ ...itemOf("assistant", "Another"), id: "b" }], [marked(itemOf("assistant", "Half an"), "cut")])[0].marks).toEqual([]);
	});
	it("are there again after a restart, for the conversations of late, until these are deleted", () => {
		const { app } = { app: App.createConfigured__({ files: {} }).asOriginalType__() };
		const kept = new Map();
		Object.assign(app, { loadLocalStorage: (key) => kept.get(key) ?? null, saveLocalStorage: (key, value) => kept.set(key, structuredClone(value)) });
		const item = { ...itemOf("assistant", "Part"), id: "a", marks: marksOf(told("cut", "The end.")) };
		new KeptMarks(app).keep("conv_1", [item]);
		for (let number = 0; number < 199; number++) new KeptMarks(app).keep(`other_${number}`, [item]);
		const again = () => new KeptMarks(app).restore("conv_1", [{ ...itemOf("assistant", "Part"), id: "a" }])[0].marks.map(({ text }) => text);
		expect(again()).toEqual(["The end."]);
		new KeptMarks(app).forget("conv_1");
		expect(again()).toEqual([]);
		for (const odd of [null, 5, { conv_1: 5 }, { conv_1: { a: "x" } }, { conv_1: { a: [{ kind: 5 }] } }]) {
			kept.set("elbowroom-marks", odd);
			expect(again()).toEqual([]);
		}
	});
});

describe("an answer", () => {
	async function answered(...chunks) {
		server = await serving(async ({ url }, response) => {
			if (url !== "/v1/chat/completions") return response.writeHead(404).end("{}");
			return response.writeHead(200, { "Content-Type": "text/event-stream" }).end(sse(...chunks, "[DONE]"));
		});
		chat = new Chat(serverAt(server.address), { model: "writer" });
		await chat.send(note);
		await until(() => !chat.isRunning && chat.items.length === 2);
		return chat.items.map(({ marks }) => marks.map(({ kind }) => kind));
	}

	it("marks what of a note the model did not get at the question, all else at itself", async () => {
		expect(await answered(
			chunk("results cut", "Long plan is too large to be shown whole."), chunk("compacting", "Compacting...", false), chunk("compacted", "Compacted."), word("Because."), chunk("cut", "The answer ends here."), finish(),
		)).toEqual([["results cut"], ["compacted", "cut"]]);
	});
	it("that is ended by its length says so", async () => {
		expect(await answered(word("Because"), finish("length"))).toEqual([[], ["length"]]);
	});
});
