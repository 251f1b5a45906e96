import { ButtonComponent } from "obsidian-test-mocks/obsidian";
import { afterEach, describe, expect, it, vi } from "vitest";
import { keepToken, moveToken, tokenOf } from "../src/settings/preferences.js";
import { ElbowroomSettingTab } from "../src/settings/settings_tab.js";
import { pluginFor, serverAt, serving, until } from "./support.js";

let server;
let tab;
afterEach(() => { tab?.hide(); tab?.containerEl.remove(); server?.close(); vi.restoreAllMocks(); });

const values = { pruning_agent: "same", threshold_ratio: 0.8, notices: "auto" };
const nameOf = (row) => row.children[1]?.children[0]?.textContent; // a row of the mocks has its controls, then its words
const row = (name) => [...tab.containerEl.children].find((each) => nameOf(each) === name);
const controlOf = (name) => tab.groups().flatMap(({ rows }) => rows).find((each) => each.name === name).control;

/** Opens the tab in front of an elbowroom with these settings, drawn as before Obsidian 1.13. */
async function opened({ locked = {}, kept = {}, token = "elbp_1", isAway = false } = {}) {
	const compaction = { ...values };
	server = await serving(async ({ method, url }, response, body) => {
		if (method === "PATCH") Object.assign(compaction, body.compaction);
		const rows = { "/v1/models": [{ id: "writer", name: "Writer" }], "/api/agents": [{ id: "writer", name: "Writer" }, { id: "off", enabled: false }], "/api/doctor": [{ name: "window", state: "problem", told: "The window is small.", remedy: "Make it larger." }] };
		response.end(JSON.stringify(url === "/api/settings" ? { values: { compaction }, locked } : url === "/health" ? { version: "9" } : { data: rows[url] }));
	});
	if (isAway) server.close();
	const plugin = pluginFor(null, { address: server.address, token, origin: server.address, ...kept });
	plugin.server = serverAt(server.address, token);
	tab = new ElbowroomSettingTab(plugin);
	delete tab.settingItems; // Obsidian has it since 1.13
	document.body.append(tab.containerEl);
	tab.display();
	if (!isAway && token) await until(() => tab.settings);
	return { plugin, compaction };
}

describe("the settings", () => {
	it("are declared from the same description that older versions draw", async () => {
		await opened();
		const declared = tab.getSettingDefinitions().flatMap(({ heading, items }) => [heading, ...items.map(({ name }) => name)]);
		const drawn = [...tab.containerEl.children].map(nameOf);
		expect(drawn).toEqual(declared);
		const controls = tab.groups().flatMap(({ rows }) => rows).filter(({ control }) => control).map(({ name }) => name);
		expect(controls.filter((name) => !row(name).children[0].childElementCount)).toEqual([]);
	});
	it("offer the current agent and every agent for pruning, and change it in elbowroom", async () => {
		const { compaction } = await opened();
		const choice = row("Pruning agent").querySelector("select");
		expect([...choice.options].map(({ value, text }) => [value, text])).toEqual([["same", "Same as current agent"], ["writer", "Writer"]]);
		await tab.setControlValue("compaction.pruning_agent", "writer");
		await tab.setControlValue("compaction.threshold_ratio", 75);
		expect(compaction).toMatchObject({ pruning_agent: "writer", threshold_ratio: 0.75 });
		expect(row("Pruning agent").querySelector("select").value).toBe("writer");
	});
	it("show what was changed elsewhere once the window is used again, and keep a file only of what is new", async () => {
		const { plugin, compaction } = await opened();
		expect(plugin.saveData).toHaveBeenCalledTimes(1);
		compaction.notices = "off";
		await tab.refresh(true);
		await tab.refresh(true);
		expect(row("Notices").querySelector("select").value).toBe("off");
		expect(plugin.saveData).toHaveBeenCalledTimes(2);
	});
	it("say what holds a setting fast, and let nobody change it", async () => {
		await opened({ locked: { "compaction.pruning_agent": "ELBOWROOM_COMPACTION__PRUNING_AGENT" } });
		expect(row("Pruning agent").textContent).toContain("It is set by ELBOWROOM_COMPACTION__PRUNING_AGENT and cannot be changed here.");
		expect(controlOf("Pruning agent").disabled()).toBe(true);
		expect(controlOf("Notices").disabled()).toBe(false);
	});
	it("are as they were last seen while elbowroom is away, and say so", async () => {
		await opened({ isAway: true, kept: { seen: { pruning_agent: "writer", threshold_ratio: "0.7", notices: "off" } } });
		await until(() => tab.problem);
		expect(row("Settings of elbowroom").textContent).toContain(`elbowroom does not answer at ${server.address}`);
		expect(row("Pruning agent").querySelector("select").value).toBe("writer");
		expect(controlOf("Pruning agent").disabled()).toBe(true);
		expect(tab.getControlValue("compaction.threshold_ratio")).toBe(70);
	});
	it("listen to the window once, however often they are drawn, and no longer once they are closed", async () => {
		const listening = vi.spyOn(window, "addEventListener");
		const leaving = vi.spyOn(window, "removeEventListener");
		await opened();
		for (let times = 0; times < 3; times++) tab.display();
		const count = (spy) => spy.mock.calls.filter(([name]) => name === "focus").length;
		expect(count(listening)).toBe(count(leaving) + 1);
		tab.hide();
		expect(count(listening)).toBe(count(leaving));
	});
});

describe("the address", () => {
	it("is taken once it is typed to its end, and asked nothing before", async () => {
		const { plugin } = await opened();
		const before = server.asked.length;
		const input = row("Address").querySelector("input");
		for (const typed of ["http://h", "http://home.exam"]) {
			input.value = typed;
			input.dispatchEvent(new Event("input"));
		}
		expect(plugin.preferences.address).toBe(server.address);
		input.value = "  nonsense://  ";
		input.dispatchEvent(new Event("change"));
		expect(row("Address").textContent).toContain("This is no address.");
		expect(server.asked).toHaveLength(before);
		input.value = `${server.address}/v1/`;
		input.dispatchEvent(new Event("change"));
		await until(() => server.asked.length > before);
		expect(plugin.preferences.address).toBe(`${server.address}/v1/`);
	});
});

describe("the test", () => {
	it.each([["elbp_1", ["Does not work: The window is small.Make it larger."]],
		["", ["Works: elbowroom 9 answers.", "Works: One model is offered.", "Look at this: This vault is not paired.Pair it to see the other checks and the settings of elbowroom."]],
	])("says what the doctor finds, or what can be seen without pairing: %j", async (token, sentences) => {
		vi.spyOn(ButtonComponent.prototype, "onClick").mockImplementation(function onClick(does) { this.buttonEl.addEventListener("click", does); return this; });
		await opened({ token });
		row("Test").querySelector("button").click();
		await until(() => tab.containerEl.querySelectorAll("[data-state]").length);
		expect([...tab.containerEl.querySelectorAll("[data-state]")].map((each) => each.textContent)).toEqual(sentences);
		await tab.refresh(true);
		expect(tab.containerEl.querySelectorAll("[data-state]")).toHaveLength(sentences.length);
	});
});

describe("the token", () => {
	it("goes into secret storage, never over a secret that a person chose", () => {
		const secrets = new Map([["my-key", "sk-mine"]]);
		const app = { secretStorage: { getSecret: (name) => secrets.get(name) ?? null, setSecret: (name, value) => secrets.set(name, value) } };
		const preferences = { address: "http://a.example/x/v1", secret: "my-key", token: "old", origin: "" };
		keepToken(app, preferences, "elbp_2");
		expect(preferences).toMatchObject({ secret: "elbowroom-token", token: "", origin: "http://a.example" });
		expect(tokenOf(app, preferences)).toBe("elbp_2");
		expect(secrets.get("my-key")).toBe("sk-mine");
	});
	it("is kept with the preferences where there is no secret storage", () => {
		const preferences = { address: "a.example", secret: "", token: "" };
		keepToken({}, preferences, "elbp_2");
		expect(tokenOf({}, preferences)).toBe("elbp_2");
	});
	it.each(["http://b.example", "https://a.example", "http://a.example:81", "http://a.example.b.example", "", "a.example@b.example"])("is sent to no other place than the one that it was made for: %s", (address) => {
		const preferences = { address: "http://a.example", secret: "", token: "" };
		keepToken({}, preferences, "elbp_2");
		preferences.address = address;
		expect(tokenOf({}, preferences)).toBe("");
		preferences.address = "a.example/v1";
		expect(tokenOf({}, preferences)).toBe("elbp_2");
	});
	it("of an earlier version belongs to the address of then", () => {
		const preferences = { address: "http://a.example", secret: "", token: "elbp_1", origin: "" };
		expect(moveToken({}, preferences)).toBe(true);
		expect(preferences.origin).toBe("http://a.example");
		expect(moveToken({}, preferences)).toBe(false);
	});
});
