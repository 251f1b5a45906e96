import { afterEach, describe, expect, it, vi } from "vitest";
import { streamChat } from "../src/server/stream.js";
import { finish, serverAt, serving, sse, word } from "./support.js";

let server;
afterEach(() => { server?.close(); vi.restoreAllMocks(); });

const body = { model: "writer", messages: [{ role: "user", content: "Hello" }] };

/** Serves these bytes piece by piece; returns what the plugin hears of them. */
async function heard(pieces, options) {
	server = await serving(async (_, response) => {
		response.writeHead(200, { "Content-Type": "text/event-stream", "X-Conversation-Id": "conv_1" });
		for (const piece of pieces) {
			response.write(piece);
			await new Promise((resolve) => { setTimeout(resolve, 2); });
		}
		response.end();
	});
	const events = [];
	for await (const event of streamChat(serverAt(server.address), body, options)) events.push(event);
	return events;
}

const textIn = (events) => events.filter(({ type }) => type === "text").map(({ text }) => text).join("");

describe("a streamed answer", () => {
	it("is the same however its bytes are cut", async () => {
		const bytes = Buffer.from(`: a comment\r\n\r\n${sse(word("Grüße, "), word("世界 🌍")).replaceAll("\n", "\r\n")}${sse(finish(), "[DONE]")}`);
		const events = await heard(Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)));
		expect(textIn(events)).toBe("Grüße, 世界 🌍");
		expect(events[0]).toEqual({ type: "begun", conversation: "conv_1" });
		expect(events.at(-1)).toEqual({ type: "end", reason: "stop" });
	});
	it("tells thoughts, notices and usage apart from the text", async () => {
		const events = await heard([sse(
			{ choices: [{ delta: { content: "", reasoning_content: "Hm." } }] },
			{ choices: [{ delta: { content: "" } }], event: { type: "status", data: { description: "Compacting…", done: false } }, elbowroom: { kind: "compacting", before: 6700 } },
			word("Yes."), finish("length"), { choices: [], usage: { prompt_tokens: 5 } }, "[DONE]")]);
		expect(events.slice(1)).toEqual([
			{ type: "thought", text: "Hm." },
			{ type: "notice", kind: "compacting", text: "Compacting…", done: false, data: { kind: "compacting", before: 6700 } },
			{ type: "text", text: "Yes." },
			{ type: "usage", usage: { prompt_tokens: 5 } },
			{ type: "end", reason: "length" },
		]);
		expect(server.asked.at(-1).headers).toMatchObject({ "x-elbowroom-events": "1" });
		expect(server.asked.at(-1).body).toMatchObject({ stream: true, stream_options: { include_usage: true } });
	});
	it("fails in words where it breaks off", async () => {
		await expect(heard([sse(word("Half"))])).rejects.toMatchObject({ code: "stream_cut", status: 0 });
	});
	it("fails with the server's own words where an error comes in it", async () => {
		await expect(heard([sse(word("Half"), { error: { message: "The model crashed.", code: "upstream" } })])).rejects.toMatchObject({ message: "The model crashed.", code: "upstream" });
	});
	it("closes its connection when it is given up", async () => {
		let isClosed = false;
		server = await serving(async (request, response) => {
			response.on("close", () => { isClosed = true; });
			response.writeHead(200, { "Content-Type": "text/event-stream" });
			response.write(sse(word("One")));
		});
		const stopping = new AbortController();
		const told = [];
		await expect((async () => {
			for await (const event of streamChat(serverAt(server.address), body, { signal: stopping.signal })) {
				told.push(event);
				if (event.type === "text") stopping.abort();
			}
		})()).rejects.toMatchObject({ name: "AbortError" });
		await vi.waitFor(() => expect(isClosed).toBe(true));
		expect(textIn(told)).toBe("One");
	});
	it("comes in one piece where the window lets nothing through to this address", async () => {
		vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
		server = await serving(async ({ url }, response) => {
			response.end(JSON.stringify(url === "/health" ? { status: "ok" } : { choices: [{ message: { content: "Whole." }, finish_reason: "stop" }], usage: {} }));
		});
		const events = [];
		for await (const event of streamChat(serverAt(server.address), body, { conversation: "c" })) events.push(event.type);
		expect(events).toEqual(["whole", "begun", "text", "usage", "end"]);
		expect(server.asked.at(-1)).toMatchObject({ path: "/v1/chat/completions", body: { stream: false } });
		vi.unstubAllGlobals();
	});
	it("is not asked for again where the connection was lost after the question may have arrived", async () => {
		server = await serving(async (_, response) => { response.end("{}"); });
		vi.stubGlobal("fetch", (url, { method } = {}) => (method === "POST" ? Promise.reject(new TypeError("Failed to fetch")) : Promise.resolve(new Response("{}"))));
		await expect((async () => { for await (const event of streamChat(serverAt(server.address), body)) expect(event).toBe(null); })())
			.rejects.toMatchObject({ status: 0, message: expect.stringContaining("connection was lost") });
		expect(server.asked.filter(({ path }) => path === "/v1/chat/completions")).toEqual([]);
		vi.unstubAllGlobals();
	});
	it("is asked for once only where nothing answers at all", async () => {
		vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
		await expect((async () => { for await (const event of streamChat(serverAt("http://127.0.0.1:9"), body)) expect(event).toBe(null); })())
			.rejects.toMatchObject({ status: 0, message: expect.stringContaining("does not answer at http://127.0.0.1:9") });
		vi.unstubAllGlobals();
	});
});
