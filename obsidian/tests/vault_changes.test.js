import { App, MarkdownView } from "obsidian-test-mocks/obsidian";
import { afterEach, describe, expect, it, vi } from "vitest";
import { showChanges } from "../src/notes/vault_changes.js";
import { serverAt, serving, until } from "./support.js";

let server;
afterEach(() => server?.close());

const step = (name, given, state = "completed") => ({ id: "c", name, arguments: JSON.stringify(given), state, result: "" });
const change = (id, note, when = 101) => ({ id, agent: "writer", what: `appended to ${note}`, when, notes: [note] });
const send = (response, value, status = 200) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));

/** Returns a message whose answer made these calls, an element for its changes, and the notes that are linked there. */
async function answered(steps, rows, undo = (response) => send(response, { id: "1", told: "Undone: appended to Plan.md." })) {
	server = await serving(({ method }, response) => (method === "POST" ? undo(response) : rows instanceof Array ? send(response, { data: rows }) : send(response, rows, 403)));
	const item = { steps, at: 100 };
	const links = [];
	const app = App.createConfigured__({ files: { "Plan.md": "Plan" } }).asOriginalType__();
	const view = { app, plugin: { server: serverAt(server.address) }, chat: { items: [item, { at: 200 }] } };
	const message = { item, view, noteLink: (row, path) => { links.push(path); row.createEl("a", { text: path }); } };
	const parent = createDiv();
	await showChanges(message, parent);
	return { message, parent, links };
}
const asked = (method) => server.asked.filter((each) => each.method === method).map(({ path }) => path);

describe("the changes of an answer", () => {
	it("are those that it made, with their notes linked", async () => {
		const { links } = await answered([step("vault_append", { path: "Pläne/Plan \"1\"" }), step("vault_rename", { path: "a.md", new_path: "b.md" })], [
			change("3", "Pläne/Plan \"1\".md", 250), change("2", "b.md"), change("1", "Pläne/Plan \"1\".md"), change("0", "Other.md"), change("00", "b.md", 20),
		]);
		expect(links).toEqual(["Pläne/Plan \"1\".md", "b.md"]);
	});
	it("tell of a deleted note, which is no link any more", async () => {
		const { parent, links } = await answered([step("vault_delete", { path: "Plan.md" })], [{ ...change("1", ".trash/Plan.md"), what: "deleted Plan.md" }]);
		expect(parent.find(".elbowroom-change").textContent).toBe("writer deleted Plan.mdUndo");
		expect(links).toEqual([]);
	});
	it("are asked for once for each call that wrote, however often the answer is drawn", async () => {
		const { message, parent } = await answered([step("vault_read", { path: "Plan.md" }), step("vault_append", { path: "Plan.md" })], [change("1", "Plan.md")]);
		await showChanges(message, parent);
		expect(asked("GET")).toHaveLength(1);
		message.item.steps.push(step("vault_append", { path: "Plan.md" }));
		await showChanges(message, parent);
		expect(asked("GET")).toHaveLength(2);
		expect(parent.findAll(".elbowroom-change")).toHaveLength(1);
	});
	it("are asked for by no answer that wrote nothing", async () => {
		await answered([step("vault_read", { path: "Plan.md" }), step("vault_append", { path: "Plan.md" }, "failed")], []);
		expect(server.asked).toEqual([]);
	});
	it("are taken back by a button, and stay shown as undone", async () => {
		const { parent } = await answered([step("vault_append", { path: "Plan.md" })], [change("1", "Plan.md")]);
		parent.find("button").click();
		await until(() => parent.textContent.includes("Undone: appended to Plan.md."));
		expect(asked("POST")).toEqual(["/api/vault/changes/1/undo"]);
		expect(parent.querySelector("button")).toBe(null);
	});
	it("are taken back only once what is being typed is in the notes, so that elbowroom sees it", async () => {
		const typed = [];
		const { message, parent } = await answered([step("vault_append", { path: "Plan.md" })], [change("1", "Plan.md")], (response) => {
			typed.push("undone");
			send(response, { id: "1", told: "Undone." });
		});
		const save = async () => { await Promise.resolve(); typed.push("saved"); };
		vi.spyOn(message.view.app.workspace, "getLeavesOfType").mockReturnValue([{ view: Object.assign(Object.create(MarkdownView.prototype), { save }) }, { view: {} }]);
		parent.find("button").click();
		await until(() => typed.length === 2);
		expect(typed).toEqual(["saved", "undone"]);
	});
	it("are found where a model wrote a name in other letters than the vault", async () => {
		const { links } = await answered([step("vault_append", { path: "pla\u0308ne/PLAN" })], [change("1", "Pl\u00e4ne/Plan.md")]);
		expect(links).toEqual(["Pl\u00e4ne/Plan.md"]);
	});
	it("keep their button where the note was changed since", async () => {
		const refuse = (response) => send(response, { error: { message: "Plan.md has changed since.", code: "note_changed" } }, 409);
		const { parent } = await answered([step("vault_append", { path: "Plan.md" })], [change("1", "Plan.md")], refuse);
		parent.find("button").click();
		await until(() => asked("POST").length && !parent.find("button").disabled);
		expect(parent.textContent).not.toContain("Undone");
	});
	it("say that pairing is needed where it is", async () => {
		const { parent } = await answered([step("vault_append", { path: "Plan.md" })], { error: { message: "Pair it.", code: "pairing_needed" } });
		expect(parent.textContent).toBe("Pair Obsidian in the plugin's settings to take changes of notes back here.");
	});
});
