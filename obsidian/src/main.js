// The plugin: what it adds to Obsidian, and what its parts share.
import { Events, Plugin } from "obsidian";
import { fillOf } from "./gauge.js";
import { baseAddress, preferencesFrom, tokenOf } from "./preferences.js";
import { Server } from "./server.js";
import { ElbowroomSettingTab } from "./settings_tab.js";

/** @typedef {{ conversation: string, context: import("./server.js").ContextFill | null, model: string }} Shown What the status bar tells. */

export default class ElbowroomPlugin extends Plugin {
	events = new Events();
	preferences = preferencesFrom(null);
	server = new Server({
		address: () => baseAddress(this.preferences.address),
		token: () => tokenOf(this.app, this.preferences),
	});

	async onload() {
		this.preferences = preferencesFrom(await this.loadData());
		this.addSettingTab(new ElbowroomSettingTab(this));
		this.addFill();
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

	/** Shows in the status bar how full the window of the open chat is, and which model answers. */
	addFill() {
		const item = this.addStatusBarItem();
		item.addClass("elbowroom-status", "mod-clickable");
		item.setAttrs({ role: "button", tabindex: "0" });
		item.hide();
		this.registerEvent(this.events.on("context", (...told) => {
			const { context, model } = /** @type {Shown} */ (told[0]);
			const { state, share, words } = fillOf(context);
			item.toggle(Boolean(model));
			item.dataset.state = state;
			item.setText(state === "unknown" ? model : `${model} ${Math.round(share * 100)} %`);
			item.setAttr("aria-label", `${model}. ${words}. Open the chat.`);
		}));
	}
}
