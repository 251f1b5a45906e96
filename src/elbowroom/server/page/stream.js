// One question, asked as a chat program would, whose answer is read as it streams; it leaves no conversation.
import { send } from "./api.js";

// Returns { text, pieces, seconds } with the seconds to the first word; `tell` gets the text when there is more of it.
export async function askOnce({ model, question, signal, limit, tell = () => {} }) {
	const began = performance.now();
	const name = `test-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
	const body = { model, stream: true, max_tokens: limit, messages: [{ role: "user", content: question(name) }] };
	try {
		return await read(await send("/v1/chat/completions", { method: "POST", body, signal, headers: { "X-Conversation-Id": name } }), began, tell);
	} finally {
		await forget(name).catch(() => {});
	}
}

// Deletes a conversation, which may still be putting away its answer.
async function forget(name) {
	for (let tries = 0; tries < 20 && (await send(`/v1/conversations/${name}`, { method: "DELETE" })).status === 409; tries++) {
		await new Promise((resolve) => { setTimeout(resolve, 100); });
	}
}

async function read(response, began, tell) {
	if (!response.ok) throw new Error((await response.json().catch(() => null))?.error?.message ?? `The answer has the status ${response.status}.`);
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "", text = "", pieces = 0, first = 0, done = false;
	for (;;) {
		const { value, done: over } = await reader.read();
		if (over) break;
		const lines = (rest + value).split("\n");
		rest = lines.pop();
		for (const line of lines.filter((each) => each.startsWith("data: ")).map((each) => each.slice(6).trim())) {
			if (line === "[DONE]") { done = true; continue; }
			const chunk = JSON.parse(line);
			if (chunk.error) throw new Error(chunk.error.message);
			const delta = chunk.choices?.[0]?.delta ?? {};
			if (!(delta.content || delta.reasoning_content || delta.reasoning)) continue;
			first ||= performance.now();
			pieces += 1;
			text += delta.content ?? "";
			tell(text);
		}
	}
	if (!pieces) throw new Error("The stream ended without a word.");
	if (!done) throw new Error("The stream ended before it was complete.");
	return { text, pieces, seconds: (first - began) / 1000 };
}
