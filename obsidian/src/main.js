// The plugin: what it adds to Obsidian, and what its parts share.
import { Events, Notice, Plugin, TFile } from "obsidian";
import { ChatView, VIEW_TYPE } from "./view/chat_view.js";
import { addEditorCommands } from "./notes/editor_commands.js";
import { addPromptCommands } from "./notes/prompts.js";
import { fillOf } from "./view/gauge.js";
import { baseAddress, moveToken, preferencesFrom, tokenOf } from "./settings/preferences.js";
import { Server, errorWords } from "./server/server.js";
import { ElbowroomSettingTab } from "./settings/settings_tab.js";

/** @typedef {{ conversation: string, context: import("./server/server.js").ContextFill | null, model: string }} Shown What the status bar tells. */

export default class ElbowroomPlugin extends Plugin {
	events = new Events();
	preferences = preferencesFrom(null);
	server = new Server({
		address: () => baseAddress(this.preferences.address),
		token: () => tokenOf(this.app, this.preferences),
		user: () => this.preferences.user,
	});

	async onload() {
		await this.loadPreferences();
		this.registerView(VIEW_TYPE, (leaf) => new ChatView(leaf, this));
		this.addRibbonIcon("message-square-text", "Open the chat", () => this.activateView());
		this.addCommand({ id: "open-chat", name: "Open the chat", callback: () => this.activateView() });
		this.addCommand({ id: "new-conversation", name: "Begin a new conversation", callback: async () => (await this.activateView())?.begin() });
		this.addCommand({ id: "ask-vault", name: "Ask about your notes", callback: async () => (await this.activateView())?.askVault() });
		addEditorCommands(this);
		addPromptCommands(this);
		this.addFileMenu();
		this.addSettingTab(new ElbowroomSettingTab(this));
		this.addFill();
	}

	/** Has all that is open end what it asks for. */
	onunload() {
		this.events.trigger("unload");
	}

	/** Shows the chat, in the right sidebar where it is not open yet. */
	async activateView() {
		const { workspace } = this.app;
		const leaf = workspace.getLeavesOfType(VIEW_TYPE)[0] ?? workspace.getRightLeaf(false);
		if (!leaf) return null;
		if (leaf.view.getViewType() !== VIEW_TYPE) await leaf.setViewState({ type: VIEW_TYPE, active: true });
		await workspace.revealLeaf(leaf);
		return leaf.view instanceof ChatView ? leaf.view : null;
	}

	/** Keeps the preferences, and tells all who show what depends on them. */
	async savePreferences() {
		await this.saveData(this.preferences);
		this.events.trigger("settings");
	}

	async onExternalSettingsChange() {
		await this.loadPreferences();
		this.events.trigger("settings");
	}

	async loadPreferences() {
		/** @type {unknown} */
		let kept = null;
		try {
			kept = await this.loadData();
		} catch (error) {
			new Notice(`What Elbowroom keeps in this vault cannot be read, so its settings are as at first. ${errorWords(error)}`);
		}
		this.preferences = preferencesFrom(kept);
		if (moveToken(this.app, this.preferences)) await this.saveData(this.preferences);
	}

	/** Lets a note be taken to the chat from its menu. */
	addFileMenu() {
		this.registerEvent(this.app.workspace.on("file-menu", (menu, file) => {
			if (!(file instanceof TFile) || file.extension !== "md") return;
			menu.addItem((item) => item.setTitle("Add to the chat").setIcon("message-square-text").onClick(async () => {
				await (await this.activateView())?.composer?.addNote(file);
			}));
		}));
	}

	/** Shows in the status bar how full the window of the open chat is, and which model answers. */
	addFill() {
		const item = this.addStatusBarItem();
		item.addClass("elbowroom-status", "mod-clickable");
		item.setAttrs({ role: "button", tabindex: "0" });
		item.hide();
		this.registerDomEvent(item, "click", () => void this.activateView());
		this.registerDomEvent(item, "keydown", (event) => { if (event.key === "Enter" || event.key === " ") void this.activateView(); });
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
