import { App } from "obsidian-test-mocks/obsidian";
import { afterEach, describe, expect, it, vi } from "vitest";
import ElbowroomPlugin from "../src/main.js";

afterEach(() => vi.restoreAllMocks());

/** Starts the plugin with what its file holds, and with these secrets on the device. */
async function started(kept, secrets = {}) {
	const app = App.createConfigured__();
	for (const [name, secret] of Object.entries(secrets)) app.secretStorage.setSecret(name, secret);
	const plugin = new ElbowroomPlugin(app.asOriginalType__(), { id: "elbowroom", name: "Elbowroom", version: "0.1.0" });
	vi.spyOn(plugin, "loadData").mockImplementation(kept);
	const saved = vi.spyOn(plugin, "saveData").mockResolvedValue();
	await plugin.onload();
	return { plugin, app, saved };
}

describe("a token in the plugin's file", () => {
	it("is moved to secret storage, and leaves the file", async () => {
		const { plugin, app, saved } = await started(async () => ({ token: "sk-old", agent: "writer" }));
		expect(app.secretStorage.getSecret("elbowroom-token")).toBe("sk-old");
		expect(saved.mock.calls).toMatchObject([[{ token: "", secret: "elbowroom-token", agent: "writer" }]]);
		expect(plugin.server.headers().Authorization).toBe("Bearer sk-old");
	});
	it("takes no other token's place", async () => {
		const { app, saved, plugin } = await started(async () => ({ token: "sk-old", secret: "mine" }), { mine: "sk-new" });
		expect(saved.mock.calls).toMatchObject([[{ token: "", secret: "mine" }]]);
		expect(app.secretStorage.getSecret("elbowroom-token")).toBe(null);
		expect(plugin.server.headers().Authorization).toBe("Bearer sk-new");
	});
	it("leaves it also where it comes from another device later", async () => {
		const { plugin, saved } = await started(async () => null);
		expect(saved).not.toHaveBeenCalled();
		plugin.loadData.mockResolvedValue({ token: "sk-old" });
		await plugin.onExternalSettingsChange();
		expect(plugin.preferences).toMatchObject({ token: "", secret: "elbowroom-token" });
	});
});

describe("the plugin", () => {
	it("starts with what it has at first where its file cannot be read, and changes nothing there", async () => {
		const { plugin, saved } = await started(async () => JSON.parse("{ broken"));
		expect(plugin.preferences.address).toBe("http://127.0.0.1:2345");
		expect(saved).not.toHaveBeenCalled();
	});
	it("tells all that is open when it is switched off", async () => {
		const { plugin } = await started(async () => null);
		const told = vi.fn();
		plugin.events.on("unload", told);
		plugin.onunload();
		expect(told).toHaveBeenCalledTimes(1);
	});
	it("sends no header that cannot be sent, whatever a token or a name holds", async () => {
		const { plugin } = await started(async () => ({ user: "J\u00fcrgen\n" }), { "elbowroom-token": "x" });
		plugin.app.secretStorage.setSecret("odd", " sk-\u2060a\n");
		Object.assign(plugin.preferences, { secret: "odd", origin: "http://127.0.0.1:2345" });
		expect(plugin.server.headers()).toEqual({ Authorization: "Bearer sk-a", "X-Elbowroom-User": "Jrgen" });
	});
});
