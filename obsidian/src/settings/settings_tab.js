// The settings: this vault's own, and those of elbowroom, which are changed there and shown as they are there.
import { Notice, PluginSettingTab, SecretComponent, Setting } from "obsidian";
import { percent } from "../view/gauge.js";
import { PairingModal } from "./pairing.js";
import { DEFAULTS, baseAddress, keptToken, originOf, tokenOf } from "./preferences.js";
import { errorWords } from "../server/server.js";

const SAME = "same";
const COMPACTION = "compaction.";
const FRESH_SECONDS = 3;
const STATES = { ok: "Works", warning: "Look at this", problem: "Does not work" };

/**
 * @typedef {object} Row One setting: a control by its key, or something of its own.
 * @property {string} name
 * @property {string} desc
 * @property {import("obsidian").SettingControl} [control]
 * @property {(setting: Setting) => void | (() => void)} [render]
 * @property {() => boolean} [visible]
 */

export class ElbowroomSettingTab extends PluginSettingTab {
	icon = "panel-left-right-dashed";
	/** @type {import("../server/server.js").ModelRow[]} */
	models = [];
	/** @type {{ id: string, name?: string }[]} */
	agents = [];
	/** @type {import("../server/server.js").SettingsAnswer | null} */
	settings = null;
	problem = "";
	/** @type {import("../server/server.js").DoctorRow[]} */
	checks = [];
	/** @type {HTMLElement | null} */
	#results = null;
	#askedAt = 0;
	/** @type {(() => void)[]} What takes the rows' listeners away again, before Obsidian 1.13. */
	#cleanups = [];

	/** @param {import("../main.js").default} plugin */
	constructor(plugin) {
		super(plugin.app, plugin);
		this.plugin = plugin;
	}

	/** @returns {{ heading: string, rows: Row[] }[]} */
	groups() {
		return [
			{ heading: "Connection", rows: this.connection() },
			{ heading: "Chat", rows: this.chat() },
			{ heading: "When a conversation grows too long", rows: this.compaction() },
		];
	}

	getSettingDefinitions() {
		return this.groups().map(({ heading, rows }) => /** @type {import("obsidian").SettingDefinitionItem} */ ({ type: "group", heading, items: rows }));
	}

	/** Shows the same settings in an Obsidian from before 1.13. */
	display() {
		this.tidy();
		this.containerEl.empty();
		for (const { heading, rows } of this.groups()) {
			new Setting(this.containerEl).setName(heading).setHeading();
			for (const row of rows) {
				if (row.visible && !row.visible()) continue;
				const setting = new Setting(this.containerEl).setName(row.name).setDesc(row.desc);
				if (row.control) this.addControl(setting, row.control);
				else this.#cleanups.push(row.render?.(setting) ?? (() => {}));
			}
		}
	}

	hide() {
		this.tidy();
		this.checks = [];
		super.hide();
	}

	tidy() {
		for (const cleanup of this.#cleanups.splice(0)) cleanup();
	}

	/** @returns {Row[]} */
	connection() {
		return [
			{
				name: "Address", desc: "Where elbowroom runs. On a phone, the address of that computer in your network.",
				render: (setting) => this.showAddress(setting),
			},
			{ name: "Pairing", desc: this.pairingWords(), render: (setting) => this.showPairing(setting) },
			{
				name: "Token", desc: "Kept in Obsidian's secret storage. Pairing fills it in; a token of your own works too.",
				render: (setting) => this.showToken(setting),
			},
			{
				name: "User", desc: "Whose conversations are listed and continued, where Open WebUI keeps several people apart. Else leave it empty.",
				control: { type: "text", key: "user" },
			},
			{ name: "Test", desc: "Looks whether everything is as it should be.", render: (setting) => this.showTest(setting) },
		];
	}

	pairingWords() {
		const { preferences } = this.plugin;
		const isElsewhere = !this.isPaired && keptToken(this.app, preferences) !== "" && preferences.origin !== "";
		const words = "Gives this vault a token of its own, which you can take back on elbowroom's page.";
		return isElsewhere ? `This vault is paired with ${preferences.origin}, whose token is sent nowhere else: pair this address as well. ${words}` : words;
	}

	/** @returns {Row[]} */
	chat() {
		const rows = this.models.map(({ id, name }) => [id, name && name !== id ? `${name} (${id})` : id]);
		const kept = this.plugin.preferences.agent;
		const known = !kept || rows.some(([id]) => id === kept) ? [] : [[kept, kept]];
		return [
			{
				name: "Default agent", desc: "Answers new conversations.",
				control: { type: "dropdown", key: "agent", options: Object.fromEntries([["", "The first there is"], ...known, ...rows]) },
			},
			{
				name: "Context from the note", desc: "What of the note you work on goes along with a question. Its size is shown before it is sent.",
				control: { type: "dropdown", key: "noteContext", options: { none: "Nothing", selection: "The selection", note: "The whole note" } },
			},
			{
				name: "Folder of prompts", desc: "Each note in it is a prompt: type / in the chat, or run it as a command. Empty for none.",
				control: { type: "text", key: "promptFolder", placeholder: DEFAULTS.promptFolder },
			},
			{
				name: "Tell of compactions in notices", desc: "Besides the line in the chat.",
				control: { type: "toggle", key: "noticesAsPopups" },
			},
		];
	}

	/** @returns {Row[]} */
	compaction() {
		const agents = Object.fromEntries([[SAME, "Same as current agent"], ...this.agents.map(({ id, name }) => [id, name || id])]);
		const chosen = String(this.getControlValue(`${COMPACTION}pruning_agent`));
		if (!(chosen in agents)) agents[chosen] = chosen;
		return [
			{ name: "Settings of elbowroom", desc: this.whereKept(), render: (setting) => this.showState(setting) },
			{
				name: "Pruning agent", desc: this.about("pruning_agent", "Writes the summary that takes the place of what no longer fits."),
				control: { type: "dropdown", key: `${COMPACTION}pruning_agent`, options: agents, disabled: () => this.isFixed("pruning_agent") },
			},
			{
				name: "Compact from", desc: this.about("threshold_ratio", "How full the window may be before the older part is summarised, in percent."),
				control: {
					type: "slider", key: `${COMPACTION}threshold_ratio`, min: 60, max: 88, step: 1,
					displayFormat: (value) => percent(value / 100), disabled: () => this.isFixed("threshold_ratio"),
				},
			},
			{
				name: "Notices", desc: this.about("notices", "How chat programs are told of what happens. This one shows them unless they are off."),
				control: {
					type: "dropdown", key: `${COMPACTION}notices`, disabled: () => this.isFixed("notices"),
					options: { auto: "As fits the program", event: "As status lines", content: "As lines of the text", comment: "As hidden comments", off: "Off" },
				},
			},
		];
	}

	whereKept() {
		if (this.problem) return this.problem;
		return this.isPaired ? "They are kept by elbowroom, and hold for all programs that use it." : "Pair this vault with elbowroom to see and change them here.";
	}

	get isPaired() {
		return tokenOf(this.app, this.plugin.preferences) !== "";
	}

	/**
	 * @param {string} key
	 * @param {string} words
	 */
	about(key, words) {
		const by = this.settings?.locked[COMPACTION + key];
		return by ? `${words} It is set by ${by} and cannot be changed here.` : words;
	}

	/** @param {string} key */
	isFixed(key) {
		return !this.settings || COMPACTION + key in this.settings.locked;
	}

	/** @param {string} key */
	getControlValue(key) {
		const { preferences } = this.plugin;
		if (!key.startsWith(COMPACTION)) return preferences[/** @type {"address"} */ (key)];
		const name = key.slice(COMPACTION.length);
		const value = this.settings?.values.compaction[name] ?? preferences.seen[name] ?? { pruning_agent: SAME, threshold_ratio: 0.8, notices: "auto" }[name];
		return name === "threshold_ratio" ? Math.round(Number(value) * 100) : value;
	}

	/**
	 * @param {string} key
	 * @param {unknown} value
	 */
	async setControlValue(key, value) {
		if (key.startsWith(COMPACTION)) {
			const name = key.slice(COMPACTION.length);
			await this.change({ [name]: name === "threshold_ratio" ? Number(value) / 100 : value });
		} else {
			Object.assign(this.plugin.preferences, { [key]: value });
			await this.plugin.savePreferences();
		}
	}

	/**
	 * Changes settings of elbowroom; what is refused is shown as it is.
	 * @param {Record<string, unknown>} compaction
	 */
	async change(compaction) {
		try {
			this.take(await this.plugin.server.changeSettings({ compaction }));
		} catch (error) {
			new Notice(errorWords(error));
		}
		this.redraw();
	}

	/** @param {import("../server/server.js").SettingsAnswer} answer */
	take(answer) {
		this.settings = answer;
		const { pruning_agent: agent, threshold_ratio: ratio, notices } = answer.values.compaction;
		const { preferences } = this.plugin;
		const seen = { pruning_agent: String(agent), threshold_ratio: String(ratio), notices: String(notices) };
		if (JSON.stringify(seen) === JSON.stringify(preferences.seen)) return;
		preferences.seen = seen;
		void this.plugin.saveData(preferences);
	}

	/**
	 * Reads what elbowroom has, unless it was read a moment ago.
	 * @param {boolean} [now]
	 */
	async refresh(now = false) {
		if (!now && Date.now() - this.#askedAt < FRESH_SECONDS * 1000) return;
		this.#askedAt = Date.now();
		const { server } = this.plugin;
		try {
			this.models = await server.models();
			this.problem = "";
			if (this.isPaired) {
				const [settings, agents] = await Promise.all([server.settings(), server.agents()]);
				this.agents = agents.filter(({ enabled }) => enabled !== false);
				this.take(settings);
			} else this.settings = null;
		} catch (error) {
			this.settings = null;
			this.problem = errorWords(error);
		}
		this.redraw();
	}

	/** Shows what is known now. */
	redraw() {
		if (!this.containerEl.isConnected) return;
		if ("settingItems" in this) this.update();
		else /** @type {ElbowroomSettingTab} */ (this).display();
	}

	/** @param {Setting} setting */
	showState(setting) {
		const again = () => void this.refresh();
		const { win } = setting.settingEl;
		win.addEventListener("focus", again);
		void this.refresh();
		setting.addButton((button) => button.setIcon("refresh-cw").setTooltip("Read them again").onClick(() => void this.refresh(true)));
		return () => win.removeEventListener("focus", again);
	}

	/**
	 * The address, taken once it is typed to its end: no half of one is ever asked.
	 * @param {Setting} setting
	 */
	showAddress(setting) {
		const problem = setting.infoEl.createDiv({ cls: "elbowroom-problem", attr: { role: "alert" } });
		setting.addText((text) => {
			text.setValue(this.plugin.preferences.address).setPlaceholder(DEFAULTS.address);
			text.inputEl.setAttrs({ inputmode: "url", "aria-label": "Address", autocomplete: "off", spellcheck: "false" });
			text.inputEl.addEventListener("change", async () => {
				const typed = text.inputEl.value;
				problem.setText(baseAddress(typed) ? "" : "This is no address. It looks like http://127.0.0.1:2345.");
				if (!baseAddress(typed)) return;
				await this.setControlValue("address", typed.trim());
				void this.refresh(true);
			});
		});
	}

	/** @param {Setting} setting */
	showPairing(setting) {
		setting.addButton((button) => button.setButtonText(this.isPaired ? "Pair again" : "Pair").onClick(() => {
			new PairingModal(this.plugin, () => void this.refresh(true)).open();
		}));
	}

	/** @param {Setting} setting */
	showToken(setting) {
		const { preferences } = this.plugin;
		if (this.app.secretStorage) {
			setting.addComponent((element) => new SecretComponent(this.app, element).setValue(preferences.secret).onChange(async (name) => {
				preferences.secret = name;
				preferences.origin = originOf(preferences.address);
				await this.plugin.savePreferences();
				void this.refresh(true);
			}));
		} else {
			setting.addText((text) => {
				text.inputEl.setAttrs({ type: "password", "aria-label": "Token", autocomplete: "off" });
				text.setValue(preferences.token).inputEl.addEventListener("change", async () => {
					preferences.token = text.inputEl.value.trim();
					preferences.origin = originOf(preferences.address);
					await this.plugin.savePreferences();
					void this.refresh(true);
				});
			});
		}
	}

	/** @param {Setting} setting */
	showTest(setting) {
		this.#results = setting.infoEl.createDiv({ attr: { role: "status" } }).createEl("ul", { cls: "elbowroom-checks" });
		this.showChecks();
		setting.addButton((button) => button.setButtonText("Test").onClick(async () => {
			button.setDisabled(true);
			this.#results?.replaceChildren(createEl("li", { text: "Looking…" }));
			this.checks = await this.examined();
			this.showChecks();
			button.setDisabled(false);
		}));
	}

	/** Shows what the last test found, also once the rows were drawn anew. */
	showChecks() {
		this.#results?.replaceChildren(...this.checks.map(checkRow));
	}

	/** @returns {Promise<import("../server/server.js").DoctorRow[]>} The doctor's sentences, or what can be seen from here. */
	async examined() {
		const { server } = this.plugin;
		try {
			if (this.isPaired) return await server.doctor();
			const [{ version }, models] = await Promise.all([server.health(), server.models()]);
			return [
				{ name: "elbowroom", state: "ok", told: `elbowroom ${version ?? ""} answers.`, remedy: null },
				models.length
					? { name: "models", state: "ok", told: models.length === 1 ? "One model is offered." : `${models.length} models are offered.`, remedy: null }
					: { name: "models", state: "problem", told: "No model is offered.", remedy: "Load one in LM Studio, or make an agent." },
				{ name: "pairing", state: "warning", told: "This vault is not paired.", remedy: "Pair it to see the other checks and the settings of elbowroom." },
			];
		} catch (error) {
			return [{ name: "elbowroom", state: "problem", told: errorWords(error), remedy: null }];
		}
	}

	/**
	 * @param {Setting} setting
	 * @param {import("obsidian").SettingControl} control
	 */
	addControl(setting, control) {
		const value = this.getControlValue(control.key);
		const disabled = typeof control.disabled === "function" ? control.disabled() : control.disabled === true;
		const keep = (/** @type {unknown} */ changed) => void this.setControlValue(control.key, changed);
		if (control.type === "text") setting.addText((text) => {
			text.setValue(String(value)).setPlaceholder(control.placeholder ?? "").setDisabled(disabled).onChange(keep);
			text.inputEl.setAttr("aria-label", setting.nameEl.textContent ?? "");
		});
		else if (control.type === "dropdown") setting.addDropdown((dropdown) => dropdown.addOptions(control.options).setValue(String(value)).setDisabled(disabled).onChange(keep));
		else if (control.type === "toggle") setting.addToggle((toggle) => toggle.setValue(value === true).setDisabled(disabled).onChange(keep));
		else if (control.type === "slider") {
			setting.addSlider((slider) => slider.setLimits(control.min, control.max, control.step).setValue(Number(value)).setDynamicTooltip().setDisabled(disabled).onChange(keep));
		}
	}
}

/** @param {import("../server/server.js").DoctorRow} row */
function checkRow({ name, state, told, remedy }) {
	const element = createEl("li", { cls: "elbowroom-check", attr: { "data-state": state } });
	element.createSpan({ cls: "elbowroom-check-state", text: `${STATES[state] ?? state}: ` });
	element.createSpan({ text: told || name });
	if (remedy) element.createDiv({ cls: "elbowroom-remedy", text: remedy });
	return element;
}
