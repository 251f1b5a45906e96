// Trades the code that elbowroom shows for a token of this device.
import { Modal, Platform, Setting } from "obsidian";
import { keepToken } from "./preferences.js";
import { errorWords } from "../server/server.js";

/** Asks for the code; `done` is called once the token is kept. */
export class PairingModal extends Modal {
	/**
	 * @param {import("../main.js").default} plugin
	 * @param {() => void} [done]
	 */
	constructor(plugin, done = () => {}) {
		super(plugin.app);
		this.plugin = plugin;
		this.done = done;
		this.code = "";
		this.isAsking = false;
	}

	onOpen() {
		this.setTitle("Pair with elbowroom");
		new Setting(this.contentEl)
			.setName("Code")
			.setDesc(`Open ${this.plugin.server.where.address()} on the computer where elbowroom runs and choose Connect, or type "elbowroom obsidian pair" in a terminal there.`)
			.addText((text) => {
				text.onChange((value) => { this.code = value.trim(); });
				text.inputEl.setAttrs({ "aria-label": "Code", placeholder: "ABCD-2345", autocomplete: "off", autocapitalize: "characters", spellcheck: "false" });
				text.inputEl.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) void this.pair(); });
				text.inputEl.focus();
			});
		this.problem = this.contentEl.createDiv({ cls: "elbowroom-problem", attr: { role: "alert" } });
		new Setting(this.contentEl)
			.addButton((button) => button.setButtonText("Cancel").onClick(() => this.close()))
			.addButton((button) => button.setButtonText("Pair").setCta().onClick(() => this.pair()));
	}

	async pair() {
		if (!this.code || this.isAsking) return;
		this.isAsking = true;
		try {
			const { token } = await this.plugin.server.pair(this.code, deviceName(this.app));
			keepToken(this.app, this.plugin.preferences, token);
			await this.plugin.savePreferences();
			this.close();
			this.done();
		} catch (error) {
			this.problem?.setText(errorWords(error));
		} finally {
			this.isAsking = false;
		}
	}

	onClose() {
		this.contentEl.empty();
	}
}

/**
 * Returns what this device is called in elbowroom's list.
 * @param {import("obsidian").App} app
 */
function deviceName(app) {
	const kind = Platform.isIosApp ? "iOS" : Platform.isAndroidApp ? "Android" : Platform.isMacOS ? "macOS" : Platform.isWin ? "Windows" : "Linux";
	return `${app.vault.getName()} (Obsidian on ${kind})`;
}
