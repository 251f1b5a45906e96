// One chat request, whose answer is read as it streams.
import { answers, isObject } from "./answers.js";
import { ServerError, errorOf, isAbort, parsed } from "./server.js";

/**
 * @typedef {{ type: "begun", conversation: string }
 *   | { type: "text", text: string }
 *   | { type: "thought", text: string }
 *   | { type: "notice", kind: string, text: string, done: boolean, data: Record<string, unknown> }
 *   | { type: "whole", text: string }
 *   | { type: "usage", usage: Record<string, unknown> }
 *   | { type: "end", reason: string }} StreamEvent `whole` tells why the answer comes in one piece.
 */

const IN_ONE_PIECE = "This Obsidian lets no answer stream from this address, so it comes in one piece.";

/**
 * Asks a model and yields what it answers. Leaving the loop, or the signal, closes the connection.
 * @param {import("./server.js").Server} server
 * @param {{ model: string, messages: import("./server.js").ChatMessage[] } & Record<string, unknown>} body
 * @param {{ conversation?: string, signal?: AbortSignal }} [options]
 * @returns {AsyncGenerator<StreamEvent, void, void>}
 * @throws {ServerError} Also where the stream ends before it is complete.
 */
export async function* streamChat(server, body, { conversation = "", signal } = {}) {
	const headers = server.headers({
		"Content-Type": "application/json", "X-Elbowroom-Events": "1", ...(conversation ? { "X-Conversation-Id": conversation } : {}),
	});
	const url = server.url("/v1/chat/completions");
	const sent = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
	/** @type {Response} */
	let response;
	try {
		// Obsidian's requestUrl can neither stream nor be stopped, so this one request is made by the window.
		response = await window.fetch(url, { method: "POST", headers, body: sent, cache: "no-store", redirect: "error", ...(signal ? { signal } : {}) });
	} catch (error) {
		if (signal?.aborted) throw error;
		if (await mayAsk(server)) throw new ServerError("The connection was lost before the answer began. Ask again.", 0);
		yield* inOnePiece(server, body, { conversation, signal });
		return;
	}
	if (!response.ok) throw errorOf(response.status, await response.text(), (name) => response.headers.get(name));
	yield { type: "begun", conversation: response.headers.get("X-Conversation-Id") || conversation };
	yield* eventsOf(response);
}

/**
 * Tells whether the window may ask this address: then a question that failed may have arrived, and is not asked twice.
 * @param {import("./server.js").Server} server
 */
async function mayAsk(server) {
	return window.fetch(server.url("/v1/models"), { headers: server.headers(), cache: "no-store", redirect: "error" }).then(() => true, () => false);
}

/**
 * @param {import("./server.js").Server} server
 * @param {{ model: string, messages: import("./server.js").ChatMessage[] } & Record<string, unknown>} body
 * @param {{ conversation: string, signal?: AbortSignal | undefined }} options
 * @returns {AsyncGenerator<StreamEvent, void, void>}
 */
async function* inOnePiece(server, body, { conversation, signal }) {
	await server.health(); // nothing answers at all: that is another sentence, and nothing is asked twice
	yield { type: "whole", text: IN_ONE_PIECE };
	if (conversation) yield { type: "begun", conversation }; // so that it can be stopped while it is written
	const answer = await server.json(answers.completion, "/v1/chat/completions", {
		method: "POST", body: { ...body, stream: false }, signal: signal ?? null, headers: conversation ? { "X-Conversation-Id": conversation } : {},
	});
	const choice = answer.choices[0];
	if (choice?.message?.reasoning_content) yield { type: "thought", text: choice.message.reasoning_content };
	if (choice?.message?.content) yield { type: "text", text: choice.message.content };
	if (answer.usage) yield { type: "usage", usage: answer.usage };
	yield { type: "end", reason: choice?.finish_reason ?? "stop" };
}

/**
 * @param {Response} response
 * @returns {AsyncGenerator<StreamEvent, void, void>}
 */
async function* eventsOf(response) {
	let reason = "";
	for await (const data of dataOf(response)) {
		if (data === "[DONE]") {
			yield { type: "end", reason: reason || "stop" };
			return;
		}
		const chunk = parsed(data);
		if (!isObject(chunk)) continue;
		if (isObject(chunk.error)) throw errorOf(Number(chunk.error.status) || 500, data, () => null);
		for (const event of eventsIn(chunk)) yield event;
		const choice = firstOf(chunk.choices);
		reason = typeof choice.finish_reason === "string" ? choice.finish_reason : reason;
	}
	throw new ServerError("The answer broke off before its end: the connection to elbowroom was lost.", 0, { code: "stream_cut" });
}

/**
 * @param {Record<string, unknown>} chunk
 * @returns {StreamEvent[]}
 */
function eventsIn(chunk) {
	/** @type {StreamEvent[]} */
	const events = [];
	const { delta } = firstOf(chunk.choices);
	const { content, reasoning_content: thought } = isObject(delta) ? delta : /** @type {Record<string, unknown>} */ ({});
	if (typeof thought === "string" && thought) events.push({ type: "thought", text: thought });
	if (typeof content === "string" && content) events.push({ type: "text", text: content });
	if (isObject(chunk.event) && isObject(chunk.event.data)) {
		const { description, done } = chunk.event.data;
		const data = isObject(chunk.elbowroom) ? chunk.elbowroom : {};
		events.push({ type: "notice", kind: String(data.kind ?? ""), text: String(description ?? ""), done: done !== false, data });
	}
	if (isObject(chunk.usage)) events.push({ type: "usage", usage: chunk.usage });
	return events;
}

/**
 * @param {unknown} choices
 * @returns {Record<string, unknown>}
 */
function firstOf(choices) {
	const first = /** @type {unknown} */ (Array.isArray(choices) ? choices[0] : undefined);
	return isObject(first) ? first : {};
}

/**
 * Yields what each `data:` line of an event stream holds, however its bytes are cut.
 * @param {Response} response
 * @returns {AsyncGenerator<string, void, void>}
 */
async function* dataOf(response) {
	if (!response.body) return;
	const reader = response.body.getReader();
	const decoder = new TextDecoder();
	let rest = "";
	try {
		for (;;) {
			const { value, done } = await reader.read().catch((error) => { throw cutBy(error); });
			const lines = (rest + decoder.decode(value, { stream: !done })).split(/\r\n|\n|\r(?!$)/);
			rest = done ? "" : lines.pop() ?? "";
			for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
			if (done) return;
		}
	} finally {
		reader.cancel().catch(() => {}); // it may be closed already
	}
}

/**
 * @param {unknown} error
 * @returns {unknown}
 */
function cutBy(error) {
	if (isAbort(error)) return error;
	return new ServerError("The answer broke off before its end: the connection to elbowroom was lost.", 0, { code: "stream_cut" });
}
