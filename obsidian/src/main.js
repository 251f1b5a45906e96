// The plugin: what it adds to Obsidian, and what its parts share.
import { Events, Plugin } from "obsidian";
import { baseAddress, preferencesFrom, tokenOf } from "./preferences.js";
import { Server } from "./server.js";

export default class ElbowroomPlugin extends Plugin {
	events = new Events();
	preferences = preferencesFrom(null);
	server = new Server({
		address: () => baseAddress(this.preferences.address),
		token: () => tokenOf(this.app, this.preferences),
	});

	async onload() {
		this.preferences = preferencesFrom(await this.loadData());
	}

	/** Keeps the preferences, and tells all who show what depends on them. */
	async savePreferences() {
		await this.saveData(this.preferences);
		this.events.trigger("settings");
	}

	async onExternalSettingsChange() {
		this.preferences = preferencesFrom(await this.loadData());
		this.events.trigger("settings");
	}
}
