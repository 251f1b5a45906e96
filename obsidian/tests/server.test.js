import { afterEach, describe, expect, it, vi } from "vitest";
import { answers } from "../src/server/answers.js";
import { serverAt, serving } from "./support.js";

let server;
afterEach(() => { server?.close(); vi.restoreAllMocks(); });

const answering = async (status, text, headers = {}) => { server = await serving(async (_, response) => { response.writeHead(status, headers).end(text); }); };

describe("a request", () => {
	it("carries the token, and a body as JSON", async () => {
		await answering(200, '{"values":{"compaction":{}}}');
		await serverAt(server.address, "elbp_1").changeSettings({ compaction: { notices: "off" } });
		expect(server.asked[0]).toMatchObject({ method: "PATCH", path: "/api/settings", headers: { authorization: "Bearer elbp_1", "content-type": "application/json" }, body: { compaction: { notices: "off" } } });
	});
	it.each([
		[401, '{"error":{"message":"Ask for its token."}}', {}, { status: 401, message: "Ask for its token.", needsPairing: true }],
		[403, '{"error":{"message":"Pair first.","code":"pairing_needed"}}', {}, { status: 403, code: "pairing_needed", needsPairing: true }],
		[409, '{"error":{"message":"Locked.","code":"conversation_locked","param":"id"}}', {}, { code: "conversation_locked", param: "id", needsPairing: false }],
		[429, '{"error":{"message":"Wait."}}', { "Retry-After": "7" }, { retryAfter: 7 }],
		[502, "<html>Bad gateway</html>", {}, { message: "elbowroom answered with status 502." }],
		[500, "", {}, { message: "elbowroom answered with status 500." }],
	])("that is answered with %i fails in words", async (status, text, headers, told) => {
		await answering(status, text, headers);
		await expect(serverAt(server.address).health()).rejects.toMatchObject(told);
	});
	it("to a place where nothing answers says so, with the address", async () => {
		await expect(serverAt("http://127.0.0.1:9").health()).rejects.toMatchObject({ status: 0, message: "elbowroom does not answer at http://127.0.0.1:9. Is it running?" });
	});
	it("without an address asks nobody", async () => {
		await expect(serverAt("").health()).rejects.toMatchObject({ status: 0, message: expect.stringContaining("No address") });
	});
	it("that was given up is not waited for", async () => {
		await answering(200, "{}");
		const stopping = new AbortController();
		const asked = serverAt(server.address).json(answers.health, "/health", { signal: stopping.signal });
		stopping.abort();
		await expect(asked).rejects.toMatchObject({ name: "AbortError" });
	});
	it("names conversations by whatever their names are", async () => {
		await answering(200, '{"id":"c","updated":1}');
		await serverAt(server.address).conversation("a/b ?c", { limit: 5 });
		expect(server.asked[0].path).toBe("/v1/conversations/a%2Fb%20%3Fc?limit=5");
	});
	it.each(["[]", "null", "<html>", '{"data":5}', '{"data":[{"id":7}]}', '{"data":[null]}'])("answered by something else than elbowroom says so, whatever that is: %s", async (text) => {
		await answering(200, text);
		await expect(serverAt(server.address).models()).rejects.toMatchObject({ status: 502, code: "odd_answer", message: expect.stringContaining("is no elbowroom, or one of another version") });
	});
	it("has what an older elbowroom leaves out filled in, and keeps what a newer one adds", async () => {
		await answering(200, '{"id":"c","updated":1,"status":"idle","later":true}');
		expect(await serverAt(server.address).conversation("c")).toEqual({ id: "c", agent: "", title: "", updated: 1, status: "idle", context: null, compactions: [], works_ahead: false, later: true });
	});
	it("takes an empty answer for nothing", async () => {
		await answering(204, "");
		expect(await serverAt(server.address).remove("c")).toBe(null);
	});
});
