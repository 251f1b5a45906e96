// A small Obsidian in a browser: a vault, a note, a side pane, settings, and the plugin as it is installed.
globalThis.told = []; // what notices have said
globalThis.editors = [];

import { setup } from "obsidian-test-mocks/setup";

setup();
delete globalThis.app; // plugins may not use it
const obsidian = await import("./obsidian.js");

/** Starts Obsidian with these notes, and the plugin with what it kept. */
async function start({ notes, kept, secrets, code, manifest, isPhone }) {
	const app = obsidian.App.createConfigured__({ files: notes });
	Object.assign(obsidian.Platform, { isDesktop: !isPhone, isDesktopApp: !isPhone, isMobile: isPhone, isMobileApp: isPhone, isPhone, isAndroidApp: isPhone, isWin: false, isLinux: !isPhone });
	document.body.toggleClass("is-mobile", isPhone);
	document.body.toggleClass("is-phone", isPhone);
	for (const [name, secret] of Object.entries(secrets)) app.secretStorage.setSecret(name, secret);
	app.vault.getName = () => "Notes";
	const module = { exports: {} };
	// eslint-disable-next-line no-new-func -- this is how Obsidian loads a plugin
	new Function("require", "module", "exports", code)((name) => {
		if (name !== "obsidian") throw new Error(`Cannot find module '${name}'`);
		return obsidian;
	}, module, module.exports);
	const PluginClass = module.exports.default ?? module.exports;
	const plugin = new PluginClass(app, manifest);
	plugin.data__ = kept;
	globalThis.theVault = new Vault(app, plugin);
	theVault.listFiles();
	plugin.loaded__ = true;
	await plugin.onload();
	for (const child of plugin.children__) child.load();
	app.workspace.setLayoutReady__();
}

class Vault {
	constructor(app, plugin) {
		this.app = app;
		this.plugin = plugin;
		this.otherPlugins = obsidian.otherPlugins;
	}

	/** Lists the notes at the side, to be dragged. */
	listFiles() {
		const list = document.querySelector(".nav-files-container");
		for (const file of this.app.vault.getMarkdownFiles()) {
			const row = list.createDiv({ cls: "nav-file-title tappable", text: file.basename, attr: { draggable: "true", "data-path": file.path } });
			row.addEventListener("click", () => this.openNote(file.path));
			row.addEventListener("dragstart", (event) => {
				event.dataTransfer.setData("text/plain", `obsidian://open?vault=Notes&file=${encodeURIComponent(file.path.replace(/\.md$/, ""))}`);
				this.app.dragManager = { draggable: { type: "file", file, title: file.basename } };
			});
		}
	}

	async openNote(path) {
		await this.app.workspace.getLeaf().openFile(this.app.vault.getFileByPath(path));
	}

	/** Selects the first place with this text in the note that is open. */
	select(text) {
		const { editor } = this.app.workspace.activeEditor;
		const at = editor.getValue().indexOf(text);
		editor.setSelection(editor.offsetToPos(at), editor.offsetToPos(at + text.length));
	}

	/** Keeps what an editor holds in its note, as Obsidian does soon after a change. */
	keep(editor) {
		const view = this.app.workspace.leaves.map((leaf) => leaf.view).find((each) => "editor" in each && each.editor === editor);
		if (view?.file) void this.app.vault.modify(view.file, editor.getValue());
	}

	async run(command) {
		const found = this.plugin.commands__.get(command);
		if (!found) throw new Error(`There is no command ${command}, but ${[...this.plugin.commands__.keys()].join(", ")}.`);
		const view = this.app.workspace.activeEditor;
		if (found.callback) return void found.callback();
		if (found.checkCallback) return void found.checkCallback(false);
		if (found.editorCallback) return void found.editorCallback(view.editor, view);
		return void found.editorCheckCallback(false, view.editor, view);
	}

	/** Shows the plugin's settings in a window of their own. */
	openSettings() {
		const [tab] = this.plugin.settingTabs__;
		const window = new obsidian.Modal(this.app);
		window.modalEl.addClass("mod-settings");
		window.setTitle("Elbowroom");
		window.onOpen = () => {
			window.contentEl.append(tab.containerEl);
			if ("settingItems" in tab) tab.update();
			else tab.display();
		};
		window.onClose = () => tab.hide();
		window.open();
	}
}

globalThis.startObsidian = start;
document.body.dataset.ready = "";
