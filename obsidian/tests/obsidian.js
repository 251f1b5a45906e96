// Obsidian for the tests: the mocks, and a requestUrl that really asks, as Obsidian's does: past the rules of web pages.
import { request } from "node:http";

export * from "obsidian-test-mocks/obsidian";

export function requestUrl({ url, method = "GET", headers = {}, body, contentType }) {
	return new Promise((done, fail) => {
		const sent = request(url, { method, headers: { ...headers, ...(contentType ? { "Content-Type": contentType } : {}) } }, async (response) => {
			const pieces = [];
			for await (const piece of response) pieces.push(piece);
			done({ status: response.statusCode, headers: response.headers, text: Buffer.concat(pieces).toString() });
		});
		sent.on("error", fail);
		sent.end(body);
	});
}
