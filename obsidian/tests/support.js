// What the tests share: a small real server, and a plugin with what its parts use.
import { createServer } from "node:http";
import { App } from "obsidian-test-mocks/obsidian";
import * as obsidian from "obsidian";
import { vi } from "vitest";
import { preferencesFrom } from "../src/settings/preferences.js";
import { Server } from "../src/server/server.js";

/** Serves `answer(request, response, body)` on a free port until the test ends; returns its address and what was asked. */
export async function serving(answer) {
	const asked = [];
	const listening = createServer(async (request, response) => {
		const pieces = [];
		for await (const piece of request) pieces.push(piece);
		const body = pieces.length ? JSON.parse(Buffer.concat(pieces).toString()) : undefined;
		asked.push({ method: request.method, path: request.url, headers: request.headers, body });
		response.setHeader("Access-Control-Allow-Origin", "*");
		response.setHeader("Access-Control-Expose-Headers", "X-Conversation-Id, Retry-After");
		if (request.method === "OPTIONS") response.setHeader("Access-Control-Allow-Headers", request.headers["access-control-request-headers"] ?? "").end();
		else await answer(request, response, body);
	});
	await new Promise((ready) => { listening.listen(0, "127.0.0.1", ready); });
	return { address: `http://127.0.0.1:${listening.address().port}`, asked, close: () => { listening.closeAllConnections(); listening.close(); } };
}

export const serverAt = (address, token = "") => new Server({ address: () => address, token: () => token, user: () => "" });

/** Returns what the parts of the plugin take for it. */
export function pluginFor(server, kept = {}) {
	const app = App.createConfigured__().asOriginalType__();
	return { app, server, events: new obsidian.Events(), preferences: preferencesFrom(kept), savePreferences: vi.fn(async () => {}), saveData: vi.fn(async () => {}) };
}

export const sse = (...chunks) => chunks.map((chunk) => `data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`).join("");
export const word = (content) => ({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
export const finish = (reason = "stop") => ({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });

/** Waits until this is true. */
export async function until(isSo) {
	for (let tries = 0; tries < 400; tries++) {
		if (isSo()) return;
		await new Promise((resolve) => { setTimeout(resolve, 10); });
	}
	throw new Error(`It never became true: ${isSo}`);
}
