import { afterEach, describe, expect, it, vi } from "vitest";
import { ConversationList } from "../src/view/conversation_list.js";
import { pluginFor, serverAt, serving, until } from "./support.js";

let server;
let list;
afterEach(() => {
	list?.containerEl.remove();
	server?.close();
});

const row = (number, more = {}) => ({ id: `conv_${number}`, name: "", agent: "writer", title: `Chat ${number}`, created: 1, updated: 2, status: "idle", context: null, ...more });
const send = (response, value, status = 200) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
const titles = () => list.list.findAll(".elbowroom-title").map((each) => each.textContent);

async function opened(answer, choose = vi.fn()) {
	server = await serving(answer);
	list = new ConversationList(pluginFor(serverAt(server.address)), choose);
	document.body.append(list.containerEl, list.contentEl);
	list.onOpen();
	await until(() => list.list.childElementCount || list.foot.textContent);
	return choose;
}
const listing = (rows) => ({ url }, response) => {
	const query = new URL(url, "http://x").searchParams;
	const found = rows.filter(({ title }) => title.includes(query.get("q") ?? ""));
	const start = Number(query.get("before") ?? 0);
	send(response, { data: found.slice(start, start + 2), has_more: start + 2 < found.length, next: String(start + 2) });
};

describe("the list of conversations", () => {
	it("shows a hostile title as it is written, and opens what is chosen", async () => {
		const title = '<img src=x onerror="alert(1)">';
		const choose = await opened(listing([row(1, { title })]));
		expect(titles()).toEqual([title]);
		expect(list.list.querySelector("img")).toBe(null);
		list.list.find(".elbowroom-open").click();
		expect(choose).toHaveBeenCalledWith("conv_1");
	});
	it("shows more at its end, and what is searched for", async () => {
		await opened(listing([row(1), row(2), row(3)]));
		await until(() => titles().length >= 2);
		await list.more();
		await until(() => titles().length === 3);
		await list.begin("3");
		expect(titles()).toEqual(["Chat 3"]);
		await list.begin("none of them");
		expect(list.foot.textContent).toBe("Nothing was found.");
	});
	it("keeps still where a newer search took the place of this one, and asks a server that fails once", async () => {
		let status = 200;
		await opened((request, response) => {
			if (status === 200) listing([row(1), row(2), row(3)])(request, response);
			else send(response, { error: { message: "Not now.", code: status === 409 ? "search_replaced" : "busy" } }, status);
		});
		await until(() => titles().length >= 2);
		status = 409;
		await list.begin("x");
		expect(list.foot.textContent).toBe("");
		status = 503;
		const before = server.asked.length;
		await list.begin("x");
		expect(list.foot.textContent).toBe("Not now.");
		expect(server.asked.length).toBe(before + 1);
	});
	it("goes from the search to the conversations and back by the arrow keys", async () => {
		await opened(listing([row(1), row(2)]));
		const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
		press("ArrowDown");
		press("ArrowDown");
		expect(document.activeElement.textContent).toContain("Chat 2");
		press("ArrowUp");
		press("ArrowUp");
		expect(document.activeElement).toBe(list.contentEl.find("input"));
	});
	it("names each of its buttons", async () => {
		await opened(listing([row(1)]));
		expect(list.list.findAll("[aria-label]").map((each) => each.getAttribute("aria-label"))).toEqual(["Rename Chat 1", "Delete Chat 1"]);
	});
});
