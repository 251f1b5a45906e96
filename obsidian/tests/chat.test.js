import { afterEach, describe, expect, it, vi } from "vitest";
import { Chat } from "../src/chat/chat.js";
import { itemsOf } from "../src/chat/items.js";
import { ServerError } from "../src/server/server.js";
import { finish, serverAt, serving, sse, until, word } from "./support.js";

let server;
let chat;
afterEach(() => { chat?.close?.(); server?.close(); });

const row = (fields) => ({ id: "conv_1", name: "", agent: "writer", title: "T", created: 1, updated: 2, status: "idle", context: { tokens: 50, window: 100 }, compactions: [], ...fields });
const json = (response, value, status = 200) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));

/** Serves an elbowroom whose answers a test writes: `answer(response, body)` streams each of them. */
async function talking(answer, kept = {}) {
	const messages = [];
	const queue = [];
	server = await serving(async ({ method, url }, response, body) => {
		if (kept.hangs?.(url)) await kept.held;
		if (kept.refusal && method === "POST") json(response, { error: { message: "The token is wrong." } }, kept.refusal);
		else if (url === "/v1/chat/completions") {
			response.writeHead(200, { "Content-Type": "text/event-stream", "X-Conversation-Id": "conv_1" });
			await answer(response, body);
		} else if (url.includes("/queue")) {
			if (method === "POST") queue.push({ id: `q${queue.length}`, mode: body.mode, message: { role: "user", content: body.content } });
			if (method === "DELETE") queue.splice(0, 1);
			json(response, method === "POST" ? { id: queue.at(-1).id, running: kept.running ?? true } : { data: queue, dropped: kept.dropped }, method === "POST" ? 202 : 200);
		} else if (url.includes("/messages")) json(response, { data: kept.messages ?? messages, has_more: false, next: null });
		else if (kept.row === null) json(response, { error: { message: "There is no conversation conv_1." } }, 404);
		else json(response, url.endsWith("/cancel") ? {} : row(kept.row ?? {}));
	});
	chat = new Chat(serverAt(server.address), { model: "writer" });
	return { queue };
}

/** Shows a conversation that elbowroom keeps, in the place of the one before. */
function open(id) {
	chat.close();
	chat = new Chat(chat.server, { id, model: chat.model });
	return chat.load();
}

const sent = () => server.asked.filter(({ path }) => path === "/v1/chat/completions");
const says = (text) => (response) => response.end(sse(word(text), finish(), "[DONE]"));

describe("a conversation", () => {
	it("sends all that was said, in one conversation", async () => {
		await talking(says("Fine."));
		await chat.send("How are you?");
		await until(() => !chat.isRunning);
		await chat.send("Good.");
		await until(() => !chat.isRunning && chat.items.length === 4);
		expect(sent()[1].body.messages).toEqual([{ role: "user", content: "How are you?" }, { role: "assistant", content: "Fine." }, { role: "user", content: "Good." }]);
		expect(sent()[0].headers["x-conversation-id"]).toMatch(/^obsidian-/);
		expect(sent()[1].headers["x-conversation-id"]).toBe("conv_1");
		await until(() => chat.context?.tokens === 50);
	});
	it("reads again what another program has said within the same second, and only then", async () => {
		const said = (id, role, content) => ({ id, created: 1, turn: null, message: { role, content }, calls: {} });
		const kept = { messages: [said("m1", "user", "Hello.")], row: { usage: { steps: 1 } } };
		await talking(says("Fine."), kept);
		await open("conv_1");
		expect(chat.items).toHaveLength(1);
		kept.messages = [...kept.messages, said("m2", "user", "Hello again.")];
		await chat.lookAgain();
		expect(chat.items).toHaveLength(1);
		kept.row = { usage: { steps: 2 } };
		await chat.lookAgain();
		expect(chat.items).toHaveLength(2);
	});
	it("keeps what it has shown where it reads again, so that only what is new is drawn", async () => {
		const said = (id, role, content, more = {}) => ({ id, created: 1, turn: null, message: { role, content }, calls: {}, ...more });
		const call = { role: "assistant", content: "", tool_calls: [{ id: "c1", function: { name: "vault_read", arguments: "{}" } }] };
		const kept = { messages: [said("m1", "user", "Hello."), said("m2", "assistant", null, { turn: "t1", message: call }), said("m3", "assistant", "Fine.", { turn: "t1" })], row: { usage: { steps: 1 } } };
		await talking(says("Better."), kept);
		await open("conv_1");
		const [{ steps }] = chat.items.slice(1);
		chat.items.push({ ...chat.items[0], id: "", text: "And now?" }, { ...chat.items[1], id: "", text: "Better.", steps: [] });
		const shown = [...chat.items];
		kept.messages = [...kept.messages, said("m4", "user", "And now?"), said("m5", "assistant", "Better. By far.", { turn: "t2" }), said("m6", "user", "Good.")];
		await chat.load();
		expect(chat.items).toHaveLength(5);
		expect(shown.map((item, place) => item === chat.items[place])).toEqual([true, true, true, true]);
		expect(chat.items[1].steps).toBe(steps);
		expect(chat.items.slice(2).map(({ id, text }) => [id, text])).toEqual([["m4", "And now?"], ["m5", "Better. By far."], ["m6", "Good."]]);
	});
	it("hears of a summary that is made behind an answer, and looks no further then", async () => {
		const full = { tokens: 3000, window: 4096, trigger: 3072, stop_at: null };
		const kept = { row: { context: full, works_ahead: true } };
		await talking(says("Fine."), kept);
		await chat.send("Hello?");
		await until(() => chat.context?.tokens === 3000);
		kept.row = { context: { ...full, tokens: 1800 }, works_ahead: false };
		await until(() => chat.context?.tokens === 1800);
		const looks = () => server.asked.filter(({ url }) => url === "/v1/conversations/conv_1").length;
		const before = looks();
		await new Promise((done) => { setTimeout(done, 1300); });
		expect(looks()).toBe(before);
	});
	it("takes what is said meanwhile into the queue", async () => {
		let end;
		const { queue } = await talking((response) => new Promise((done) => { response.write(sse(word("One"))); end = () => { response.end(sse(finish(), "[DONE]")); done(); }; }));
		await chat.send("Go.");
		await until(() => chat.items.at(-1).text === "One");
		await Promise.all([chat.send("Also this."), chat.send("And that.")]);
		expect(sent()).toHaveLength(1);
		expect(queue.map(({ message }) => message.content).sort()).toEqual(["Also this.", "And that."]);
		end();
		await until(() => !chat.isRunning);
	});
	it("keeps what was said when it is stopped, and tells elbowroom", async () => {
		await talking((response) => { response.write(sse(word("Half an"))); });
		await chat.send("Go.");
		await until(() => chat.items.at(-1).text !== "");
		await chat.stop();
		await until(() => !chat.isRunning);
		expect(chat.items.at(-1)).toMatchObject({ text: "Half an", status: "interrupted" });
		expect(chat.problem).toBe(null);
		expect(server.asked.some(({ path }) => path === "/v1/conversations/conv_1/cancel")).toBe(true);
	});
	it("knows what waited for an answer that was stopped, until something else waits", async () => {
		const kept = { dropped: [{ id: "q0", message: { role: "user", content: "Also this." } }] };
		await talking(says("Fine."), kept);
		await open("conv_1");
		expect(chat.dropped.map(({ message }) => message.content)).toEqual(["Also this."]);
		kept.dropped = undefined;
		await chat.load();
		expect(chat.dropped).toEqual([]);
	});
	it("stops before the first word as well, and leaves the question", async () => {
		await talking(() => {});
		await chat.send("Go.");
		await until(() => sent().length === 1);
		await chat.stop();
		await until(() => !chat.isRunning);
		expect(chat.items.map(({ role }) => role)).toEqual(["user"]);
	});
	it("is answered anew, or asked in other words, without what followed", async () => {
		await talking((response, body) => says(`Answer ${sent().length} to ${body.messages.at(-1).content}`)(response));
		await chat.send("First");
		await until(() => !chat.isRunning);
		await chat.retry();
		expect(chat.items.map(({ text }) => text)).toEqual(["First", "Answer 2 to First"]);
		expect(chat.edit(chat.items[0], "Other")).toBe(true);
		await until(() => !chat.isRunning);
		expect(chat.items.map(({ text }) => text)).toEqual(["Other", "Answer 3 to Other"]);
		expect(sent()[2].body.messages).toHaveLength(1);
	});
	it("hears nothing of its answer any more once it is closed", async () => {
		let late;
		await talking((response) => { late = response; response.write(sse(word("Old"))); });
		await chat.send("Go.");
		await until(() => chat.items.at(-1).text === "Old");
		chat.close();
		late.end(sse(word(" words"), finish(), "[DONE]"));
		await new Promise((resolve) => { setTimeout(resolve, 50); });
		expect(chat.items.at(-1).text).toBe("Old");
		expect(chat.isRunning).toBe(false);
	});
	it("is compacted by hand with a focus, once it has an answer", async () => {
		await talking(says("Fine."));
		expect(await chat.compact("")).toBe(false);
		await chat.send("Hello");
		await until(() => !chat.isRunning);
		expect(await chat.compact("keep the SQL")).toBe(true);
		expect(server.asked.find(({ path }) => path.endsWith("/compact")).body).toEqual({ focus: "keep the SQL" });
	});
	it("keeps a compaction by hand that is asked for while what is noted of the last answer is read", async () => {
		let release;
		const kept = { held: new Promise((resolve) => { release = resolve; }), hangs: (url) => url.includes("/messages") };
		await talking(says("Fine."), kept);
		await chat.send("Hello");
		await until(() => server.asked.some(({ path }) => path.includes("/messages")));
		kept.row = { compactions: [{ at: 3, before: 90, after: 40 }] };
		setTimeout(release, 50);
		await chat.compact("");
		await new Promise((resolve) => { setTimeout(resolve, 100); });
		expect(chat.compactions).toHaveLength(1);
	});
	it("says in words why there is no answer, and keeps the question for another try", async () => {
		server = await serving(async ({ url }, response) => (url === "/v1/chat/completions" ? json(response, { error: { message: "There is no model x." } }, 404) : json(response, { error: { message: "None." } }, 404)));
		chat = new Chat(serverAt(server.address), { model: "x" });
		await chat.send("Hello");
		await until(() => chat.problem !== null);
		expect(chat.problem.message).toBe("There is no model x.");
		expect(chat.items.map(({ text }) => text)).toEqual(["Hello"]);
	});
	it("comes back with what was kept where elbowroom was restarted in the middle", async () => {
		const kept = { messages: [{ id: "m", number: 1, created: 1, turn: null, calls: {}, hidden: false, message: { role: "user", content: "Go." } },
			{ id: "t.1", number: 2, created: 2, turn: "t", turn_status: "interrupted", calls: {}, hidden: false, message: { role: "assistant", content: "Half an ans" } }] };
		await talking((response) => { response.write(sse(word("Half an"))); setTimeout(() => response.destroy(), 20); }, kept);
		await chat.send("Go.");
		await until(() => chat.isAway);
		await until(() => !chat.isAway);
		await until(() => chat.items.at(-1).text === "Half an ans");
		expect(chat.items.at(-1).status).toBe("interrupted");
	});
	it("stops also where elbowroom does not answer to that", async () => {
		await talking((response) => { response.write(sse(word("Half an"))); }, { hangs: (url) => url.endsWith("/cancel"), held: new Promise(() => {}) });
		await chat.send("Go.");
		await until(() => chat.items.at(-1).text !== "");
		void chat.stop();
		await until(() => !chat.isRunning);
		expect(chat.items.at(-1)).toMatchObject({ text: "Half an", status: "interrupted" });
	});
	it("answers what was said to an answer that had just ended", async () => {
		const kept = { row: { status: "running" }, running: false };
		const { queue } = await talking(says("Fine."), kept);
		await open("conv_1");
		expect(chat.state).toBe("elsewhere");
		kept.row = {};
		expect(await chat.send("And this?")).toBe(true);
		await until(() => !chat.isRunning && sent().length === 1);
		expect(queue).toEqual([]);
		expect(server.asked.filter(({ method, path }) => method !== "GET" && path.includes("/queue")).map(({ method }) => method)).toEqual(["POST", "DELETE"]);
		expect(sent()[0].body.messages).toEqual([{ role: "user", content: "And this?" }]);
	});
	it("is asked in other words also once it was read again, and never takes words that it does not send", async () => {
		const said = (id, role, content) => ({ id, created: 1, turn: null, message: { role, content }, calls: {} });
		const kept = { messages: [said("m1", "user", "Hello."), said("m2", "assistant", "Fine.")] };
		await talking(says("Fine."), kept);
		await open("conv_1");
		const [asked] = chat.items;
		await chat.load();
		expect(chat.edit({ ...asked }, "Another conversation's")).toBe(false);
		expect(chat.edit(asked, "Other")).toBe(true);
		expect(chat.edit(asked, "Third")).toBe(false);
		await until(() => !chat.isRunning);
		expect(sent().map(({ body }) => body.messages)).toEqual([[{ role: "user", content: "Other" }]]);
	});
	it("goes on behind what was said in another view of it, or on another device", async () => {
		const said = (id, role, content) => ({ id, created: 1, turn: null, message: { role, content }, calls: {} });
		const kept = { messages: [said("m1", "user", "Hello.")], row: { usage: { steps: 1 } } };
		await talking(says("Fine."), kept);
		await open("conv_1");
		kept.messages = [...kept.messages, said("m2", "assistant", "Hello, you.")];
		kept.row = { usage: { steps: 2 } };
		await Promise.all([chat.send("Goodbye."), chat.send("Twice.")]);
		await until(() => !chat.isRunning);
		expect(sent()).toHaveLength(1);
		expect(sent()[0].body.messages.map(({ content }) => content)).toEqual(["Hello.", "Hello, you.", "Goodbye."]);
	});
	it.each([[401, "a token is refused"], [0, "nothing answers"]])("keeps a question that never arrived, once it is read again (%d: %s)", async (status) => {
		const kept = { messages: [{ id: "m1", created: 1, turn: null, message: { role: "user", content: "Hello." }, calls: {} }] };
		await talking(says("Fine."), kept);
		await open("conv_1");
		const answering = chat.server;
		if (status) kept.refusal = status;
		else chat.server = serverAt("http://127.0.0.1:9");
		await chat.send("A long question.");
		await until(() => chat.problem?.status === status && !chat.isRunning);
		kept.refusal = 0;
		chat.server = answering;
		await chat.load();
		expect(chat.items.map(({ text }) => text)).toEqual(["Hello.", "A long question."]);
		await chat.retry();
		expect(sent().at(-1).body.messages.map(({ content }) => content)).toEqual(["Hello.", "A long question."]);
		kept.messages.push({ id: "m2", created: 2, turn: null, message: { role: "user", content: "A long question." }, calls: {} });
		await chat.load();
		expect(chat.items.map(({ text }) => text)).toEqual(["Hello.", "A long question."]);
	});
	it("is never gone on with where it could not be read", async () => {
		chat = new Chat(serverAt("http://127.0.0.1:9"), { id: "conv_1" });
		void chat.load();
		expect(await chat.send("And this?")).toBe(false);
		expect(chat.items).toEqual([]);
		expect(chat.isAway).toBe(true);
	});
	it("sends what was said while it was read behind all of it", async () => {
		await talking(says("Fine."), { messages: [{ id: "m1", created: 1, turn: null, message: { role: "user", content: "Hello." }, calls: {} }] });
		void open("conv_1");
		expect(await chat.send("And this?")).toBe(true);
		await until(() => !chat.isRunning);
		expect(sent()[0].body.messages.map(({ content }) => content)).toEqual(["Hello.", "And this?"]);
	});
	it("goes on where it was deleted while another program answered", async () => {
		const kept = { row: { status: "running" } };
		await talking(says("Fine."), kept);
		await open("conv_1");
		expect(chat.state).toBe("elsewhere");
		kept.row = null;
		await until(() => chat.state !== "elsewhere");
		expect(chat.problem.message).toBe("There is no conversation conv_1.");
		await chat.send("Hello?");
		await until(() => !chat.isRunning);
		expect(chat.items.map(({ text }) => text)).toEqual(["Hello?", "Fine."]);
	});
	it("is free again soon where elbowroom still noted the end of an answer", async () => {
		const kept = { row: { status: "running" } };
		await talking(says("Fine."), kept);
		await chat.send("Hello?");
		await until(() => chat.state === "elsewhere");
		kept.row = {};
		await until(() => !chat.isBusy);
		expect(chat.problem).toBe(null);
	});
	it("asks nothing anew while another program's answer is written", async () => {
		await talking(says("Fine."), { row: { status: "running" }, messages: [{ id: "m1", created: 1, turn: null, message: { role: "user", content: "Hello." }, calls: {} }] });
		await open("conv_1");
		expect(chat.edit(chat.items[0], "Other")).toBe(false);
		await chat.retry();
		expect(sent()).toEqual([]);
		expect(chat.items.map(({ text }) => text)).toEqual(["Hello."]);
	});
	it("sees an answer that runs elsewhere, also one that has just begun", async () => {
		const kept = { row: {} };
		await talking(says("Fine."), kept);
		await open("conv_1");
		kept.row = { status: "running" };
		await chat.lookAgain();
		expect(chat.state).toBe("elsewhere");
	});
	it("looks for elbowroom until it is back", async () => {
		chat = new Chat(serverAt("http://127.0.0.1:9"));
		chat.missed(new ServerError("It does not answer.", 0));
		expect(chat.isAway).toBe(true);
		server = await serving((_, response) => json(response, {}));
		chat.server = serverAt(server.address);
		const back = vi.fn();
		chat.on("back", back);
		await until(() => back.mock.calls.length);
		expect(chat.isAway).toBe(false);
	});
	it.each(["new", "kept"])("asks what was said while elbowroom was away as soon as it is back, without another word (%s)", async (kind) => {
		const said = (id, role, content) => ({ id, created: 1, turn: null, message: { role, content }, calls: {} });
		const kept = { messages: kind === "kept" ? [said("m1", "user", "Hello."), said("m2", "assistant", "Hello, you.")] : [] };
		await talking((response) => {
			kept.messages = [...kept.messages, said("m3", "user", "Are you there?"), said("m4", "assistant", "Fine.")];
			says("Fine.")(response);
		}, kept);
		if (kind === "kept") await open("conv_1");
		const answering = chat.server;
		chat.server = serverAt("http://127.0.0.1:9");
		expect(await chat.send("Are you there?")).toBe(true);
		await until(() => chat.items.at(-1).status === "waiting" && chat.isAway);
		expect(sent()).toEqual([]);
		chat.server = answering;
		await vi.waitFor(() => expect(chat.items.at(-1).text).toBe("Fine."), 12_000);
		expect(sent()).toHaveLength(1);
		expect(sent()[0].body.messages.at(-1)).toEqual({ role: "user", content: "Are you there?" });
		expect(chat.problem).toBe(null);
	}, 15_000);
	it("asks once more by itself where elbowroom ended before the first word, and no third time: the question may be why", async () => {
		await talking((response) => { response.flushHeaders(); response.destroy(); });
		await chat.send("Go.");
		await vi.waitFor(() => expect([sent().length, chat.isRunning]).toEqual([2, false]), 12_000);
		await until(() => !chat.isAway);
		await new Promise((resolve) => { setTimeout(resolve, 100); });
		expect(sent()).toHaveLength(2);
		expect(chat.items.map(({ role, status }) => [role, status])).toEqual([["user", "again"]]);
	}, 15_000);
	it("keeps who was chosen to answer, whoever answered last", async () => {
		await talking(says("Fine."), { row: { agent: "librarian" } });
		await open("conv_1");
		expect(chat.model).toBe("librarian");
		Object.assign(chat, { model: "archivist", isPicked: true });
		await chat.load();
		await chat.send("Hello.");
		await until(() => !chat.isRunning);
		expect([chat.model, sent().at(-1).body.model]).toEqual(["archivist", "archivist"]);
	});
	it("asks for nothing any more once it is closed", async () => {
		await talking((response) => { response.write(sse(word("One"))); }, { row: { status: "running" } });
		await open("conv_1");
		chat.close();
		const timers = vi.spyOn(window, "setTimeout");
		chat.missed(new ServerError("It does not answer.", 0));
		expect(timers).not.toHaveBeenCalled();
	});
});

describe("kept messages", () => {
	it("are one item for each turn, as its client has seen it", () => {
		const of = (fields) => ({ id: "x", number: 1, created: 1, turn: "t", turn_status: "complete", calls: { c: "completed" }, hidden: false, reasoning: null, ...fields });
		const items = itemsOf([
			of({ turn: null, message: { role: "system", content: "Be kind." } }),
			of({ turn: null, message: { role: "user", content: [{ type: "text", text: "List?" }] }, recalled: [{ role: "user", text: "Oats!", at: 1 }] }),
			of({ hidden: true, reasoning: "A note.", message: { role: "assistant", content: "", tool_calls: [{ id: "c", function: { name: "vault_read", arguments: '{"path":"A.md"}' } }] } }),
			of({ hidden: true, message: { role: "tool", tool_call_id: "c", content: "- oats" } }),
			of({ message: { role: "assistant", content: "Oats." } }),
			of({ hidden: true, message: { role: "user", content: "And milk?" } }),
			of({ message: { role: "assistant", content: "Yes." } }),
		]);
		expect(items.map(({ role, text }) => [role, text])).toEqual([["system", "Be kind."], ["user", "List?"], ["assistant", "Oats.\n\nYes."]]);
		expect(items[2]).toMatchObject({ thought: "A note.", between: ["And milk?"], steps: [{ name: "vault_read", result: "- oats", state: "completed" }] });
		expect(items.map(({ recalled }) => recalled.map(({ text }) => text))).toEqual([[], ["Oats!"], []]);
		expect(items[1].sent).toEqual({ role: "user", content: [{ type: "text", text: "List?" }] });
	});
});
