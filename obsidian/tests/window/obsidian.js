// The module "obsidian" for a real browser: the mocks, and what of Obsidian they leave out, since it needs a screen or
// a network: components that answer to clicks and keys, modals, menus and notices that can be seen, rendered Markdown,
// requests that ignore CORS. Elements have Obsidian's own classes and the roles and names that Obsidian gives them.
import * as mocks from "obsidian-test-mocks/obsidian";
import DOMPurify from "dompurify";
import { Marked } from "marked";

export * from "obsidian-test-mocks/obsidian";

const {
	AbstractTextComponent, BaseComponent, ButtonComponent, Component, DropdownComponent, Editor, ExtraButtonComponent, ItemView,
	MarkdownRenderer, MarkdownView, Menu, Modal, Notice, Plugin, Scope, SearchComponent, SecretComponent, Setting, SettingGroup,
	SettingTab, SliderComponent, SuggestModal, TextAreaComponent, TextComponent, ToggleComponent, Workspace, WorkspaceLeaf,
} = mocks;

// Icons are drawn as one of a few shapes, by their names.

const SHAPES = {
	plus: "M12 5v14M5 12h14", x: "M6 6l12 12M18 6L6 18", check: "M4 12l5 5L20 6", square: "M6 6h12v12H6z",
	send: "M4 12l16-8-6 16-3-7z", copy: "M9 9h11v11H9zM5 15H4V4h11v1", pencil: "M4 20l1-5L16 4l4 4L9 19z", trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
	undo: "M9 14L4 9l5-5M4 9h11a5 5 0 010 10h-3", refresh: "M20 11a8 8 0 10-2 6M20 5v6h-6", list: "M4 6h16M4 12h16M4 18h16", file: "M6 3h8l4 4v14H6zM14 3v4h4",
	paperclip: "M20 11l-8 8a5 5 0 01-7-7l9-9a3 3 0 015 5l-9 8a1 1 0 01-2-2l7-7", arrow: "M12 19V5M6 11l6-6 6 6", message: "M4 5h16v11H9l-5 4z", search: "M10 4a6 6 0 100 12 6 6 0 000-12zM15 15l5 5",
	"messages-square": "M3 4h12v8H8l-3 3v-3H3zM18 9h3v8h-2v3l-3-3h-5v-2", "square-pen": "M12 5H5v14h14v-7M9 15l1-4 8-8 3 3-8 8z", "ellipsis-vertical": "M11 5h2M11 12h2M11 19h2",
	cursor: "M5 8H3v8h2M10 8h11v8H10M7 5v14M5 5h4M5 19h4", "file-plus": "M6 3h8l4 4v14H6zM14 3v4h4M12 11v6M9 14h6", fold: "M12 3v6l3-3M12 9L9 6M4 12h16M12 21v-6l3 3M12 15l-3 3", minimize: "M4 9h16M4 15h16M12 3v3M12 18v3", more: "M5 12h.1M12 12h.1M19 12h.1", text: "M5 6h14M5 12h9M5 18h12", wand: "M5 19L16 8M14 4v3M19 9h-3M18 4l-1 1",
};

export function setIcon(parent, name) {
	const shape = SHAPES[Object.keys(SHAPES).sort((one, other) => other.length - one.length).find((part) => name.includes(part))] ?? "M5 5h14v14H5z";
	parent.querySelector(":scope > svg.svg-icon")?.remove();
	const svg = createSvg("svg", { cls: `svg-icon lucide-${name}`, attr: { viewBox: "0 0 24 24", width: "24", height: "24", fill: "none", stroke: "currentColor", "stroke-width": "2" } });
	svg.append(createSvg("path", { attr: { d: shape } }));
	parent.prepend(svg);
}

export function setTooltip(element, tooltip) {
	element.setAttribute("aria-label", tooltip);
}

// Requests leave past the browser, as Obsidian's do, so that no CORS holds for them.

export function requestUrl(request) {
	const asked = typeof request === "string" ? { url: request } : request;
	const { url, method = "GET", body = null, contentType, headers = {} } = asked;
	const sent = contentType ? { ...headers, "Content-Type": contentType } : headers;
	const answered = globalThis.requestPastTheBrowser({ url, method, body, headers: sent }).then((answer) => {
		if (answer.failed) throw new Error(`net::ERR_${answer.failed}`);
		if (answer.status >= 400 && asked.throw !== false) throw Object.assign(new Error(`Request failed, status ${answer.status}`), { status: answer.status });
		return { status: answer.status, headers: answer.headers, text: answer.text, get json() { return JSON.parse(answer.text); }, arrayBuffer: new TextEncoder().encode(answer.text).buffer };
	});
	for (const part of ["text", "json", "arrayBuffer"]) Object.defineProperty(answered, part, { get: () => answered.then((answer) => answer[part]) });
	return answered;
}

// Markdown as Obsidian shows it: HTML in it is cleaned of scripts, but frames, images and media stay and are loaded;
// other plugins run what stands in code blocks of their language.

export const otherPlugins = { ran: [], languages: ["dataviewjs", "js-engine", "templater"] };

const marked = new Marked({
	gfm: true, breaks: true,
	extensions: [{
		name: "wikilink", level: "inline", start: (text) => text.indexOf("[["),
		tokenizer(text) {
			const found = /^(!?)\[\[([^\]|\n]+)(?:\|([^\]\n]+))?\]\]/.exec(text);
			return found ? { type: "wikilink", raw: found[0], target: found[2], text: found[3] ?? found[2] } : undefined;
		},
		renderer: ({ target, text }) => `<a class="internal-link" data-href="${escaped(target)}" href="${escaped(target)}">${escaped(text)}</a>`,
	}],
});

function escaped(text) {
	const holder = document.createElement("div");
	holder.textContent = text;
	return holder.innerHTML.replaceAll('"', "&quot;");
}

MarkdownRenderer.render = async (_app, markdown, element) => {
	element.append(DOMPurify.sanitize(marked.parse(markdown), { RETURN_DOM_FRAGMENT: true, ADD_TAGS: ["iframe"], ADD_ATTR: ["target", "allow"] }));
	for (const code of element.querySelectorAll("pre > code")) {
		const language = /language-(\S+)/.exec(code.className)?.[1] ?? "";
		if (otherPlugins.languages.includes(language)) otherPlugins.ran.push(code.textContent);
	}
};
MarkdownRenderer.renderMarkdown = (markdown, element, path, component) => MarkdownRenderer.render(null, markdown, element, path, component);

// Components of forms.

BaseComponent.prototype.setDisabled = function setDisabled(disabled) {
	this.disabled = disabled;
	for (const name of ["buttonEl", "selectEl", "inputEl", "sliderEl"]) if (name in this) this[name].disabled = disabled;
	if ("toggleEl" in this) this.toggleEl.toggleClass("is-disabled", disabled);
	return this;
};

ButtonComponent.prototype.constructor2__ = function begun() {
	this.buttonEl.addEventListener("click", (event) => this.clickHandler?.(event));
};
ButtonComponent.prototype.setIcon = function iconOf(icon) {
	setIcon(this.buttonEl, icon);
	return this;
};

ExtraButtonComponent.prototype.constructor2__ = function begun() {
	this.extraSettingsEl.addClass("clickable-icon", "extra-setting-button");
	this.extraSettingsEl.addEventListener("click", () => this.clickHandler?.());
};
ExtraButtonComponent.prototype.setIcon = function iconOf(icon) {
	setIcon(this.extraSettingsEl, icon);
	return this;
};

DropdownComponent.prototype.constructor3__ = function begun() {
	this.selectEl.addClass("dropdown");
	this.selectEl.addEventListener("change", () => this.changeCallback?.());
};
DropdownComponent.prototype.setValue = function setValue(value) {
	this.selectEl.value = value;
	return this;
};

AbstractTextComponent.prototype.constructor3__ = function begun() {
	if (!this.inputEl.type || this.inputEl.type === "text") this.inputEl.setAttribute("type", "text");
	this.inputEl.setAttribute("spellcheck", "false");
	this.inputEl.addEventListener("input", () => this._onChange?.(this.inputEl.value));
};
AbstractTextComponent.prototype.getValue = function getValue() {
	return this.inputEl.value;
};
AbstractTextComponent.prototype.setValue = function setValue(value) {
	this.inputEl.value = value;
	return this;
};

SearchComponent.prototype.constructor4__ = function begun(container) {
	container.addClass("search-input-container");
	this.inputEl.type = "search";
};

ToggleComponent.prototype.constructor3__ = function begun() {
	this.toggleEl.addClass("checkbox-container");
	this.box = this.toggleEl.createEl("input", { type: "checkbox", attr: { tabindex: "0" } });
	this.box.addEventListener("change", () => this.onClick());
};
ToggleComponent.prototype.onClick = function onClick() {
	if (!this.disabled) this.setValue(!this.value);
};
ToggleComponent.prototype.setValue = function setValue(value) {
	const changed = this.value !== value;
	this.value = value;
	this.box.checked = value;
	this.toggleEl.toggleClass("is-enabled", value);
	if (changed) this._onChange?.(value);
	return this;
};

SliderComponent.prototype.constructor3__ = function begun() {
	this.sliderEl.addClass("slider");
	this.sliderEl.addEventListener("change", () => {
		this.value = Number(this.sliderEl.value);
		this._onChange?.(this.value);
	});
};
SliderComponent.prototype.setValue = function setValue(value) {
	this.value = value;
	this.sliderEl.value = String(value);
	return this;
};

SecretComponent.prototype.constructor2__ = function begun(app, container) {
	this.selectEl = container.createEl("select", { cls: "dropdown", attr: { "aria-label": "Secret" } });
	for (const name of ["", ...app.secretStorage.listSecrets()]) this.selectEl.createEl("option", { value: name, text: name || "None" });
	this.selectEl.addEventListener("change", () => this._onChange?.(this.selectEl.value));
};
SecretComponent.prototype.setValue = function setValue(value) {
	this.selectEl.value = value;
	return this;
};

let settings = 0;
Setting.prototype.constructor__ = function begun() {
	this.settingEl.addClass("setting-item");
	this.infoEl.addClass("setting-item-info");
	this.nameEl.addClass("setting-item-name");
	this.descEl.addClass("setting-item-description");
	this.controlEl.addClass("setting-item-control");
	this.settingEl.append(this.controlEl);
	this.nameEl.id = `setting-name-${(settings += 1)}`;
};
Setting.prototype.setDesc = function setDesc(words) {
	this.descEl.empty();
	this.descEl.append(words);
	return this;
};
const addToggle = Setting.prototype.addToggle;
Setting.prototype.addToggle = function named(callback) {
	addToggle.call(this, callback);
	for (const box of this.controlEl.querySelectorAll("input[type=checkbox]")) box.setAttribute("aria-labelledby", this.nameEl.id);
	return this;
};
Setting.prototype.clear = function clear() {
	this.components = [];
	this.controlEl.empty();
	return this;
};

SettingGroup.prototype.constructor__ = function begun() {
	this.groupEl__.addClass("setting-group");
	this.headerEl.addClass("setting-item", "setting-item-heading");
	this.headerInnerEl.addClass("setting-item-name");
	this.listEl.addClass("setting-items");
};
SettingTab.prototype.constructor__ = function begun() {
	this.containerEl.addClass("vertical-tab-content");
	this.cleanups = [];
};

// Settings that are described rather than drawn, as Obsidian has them from 1.13 on.

SettingTab.prototype.update = function update() {
	this.settingItems = this.getSettingDefinitions();
	if (this.containerEl.isConnected) this.renderTab__();
};
SettingTab.prototype.renderTab__ = function render() {
	for (const cleanup of this.cleanups.splice(0)) cleanup();
	if (!("settingItems" in this) || !this.settingItems.length) return void this.display();
	const focused = this.containerEl.contains(document.activeElement) ? document.activeElement.getAttribute("aria-labelledby") : null;
	const places = new Map([...this.containerEl.querySelectorAll(".setting-item-name")].map((name) => [name.id, name.textContent]));
	this.containerEl.empty();
	for (const group of this.settingItems) {
		const drawn = new SettingGroup(this.containerEl).setHeading(group.heading ?? "");
		for (const item of group.items) if (holds(item.visible, true)) drawn.addSetting((setting) => this.draw(setting.setName(item.name).setDesc(item.desc ?? ""), drawn, item));
	}
	const name = [...this.containerEl.querySelectorAll(".setting-item-name")].find((each) => focused && each.textContent === places.get(focused));
	if (name) this.containerEl.querySelector(`[aria-labelledby="${name.id}"]`)?.focus();
};
SettingTab.prototype.draw = function draw(setting, group, { control, render }) {
	if (render) this.cleanups.push(render(setting, group) ?? (() => {}));
	if (!control) return;
	const value = this.getControlValue(control.key);
	const keep = async (changed) => {
		const problem = await control.validate?.(changed);
		setting.setErrorMessage(problem || null);
		if (!problem) await this.setControlValue(control.key, changed);
	};
	const disabled = holds(control.disabled, false);
	const add = {
		text: () => setting.addText((text) => text.setPlaceholder(control.placeholder ?? "").setValue(value).setDisabled(disabled).onChange(keep)),
		dropdown: () => setting.addDropdown((dropdown) => dropdown.addOptions(control.options).setValue(value).setDisabled(disabled).onChange(keep)),
		toggle: () => setting.addToggle((toggle) => toggle.setValue(value).setDisabled(disabled).onChange(keep)),
		slider: () => setting.addSlider((slider) => slider.setLimits(control.min, control.max, control.step).setValue(value).setDisabled(disabled).onChange(keep)),
	};
	add[control.type]();
	for (const element of setting.controlEl.querySelectorAll("input, select")) element.setAttribute("aria-labelledby", setting.nameEl.id);
};
SettingTab.prototype.hide = function hide() {
	for (const cleanup of this.cleanups.splice(0)) cleanup();
	this.containerEl.empty();
};

function holds(predicate, otherwise) {
	return typeof predicate === "function" ? predicate() : predicate ?? otherwise;
}

// What opens over all else, and the keys that belong to it.

const scopes = [];
Scope.prototype.register = function register(modifiers, key, func) {
	const handler = { key, modifiers: modifiers?.join(",") ?? null, scope: this, func };
	this.handlers.push(handler);
	return handler;
};

document.addEventListener("keydown", (event) => {
	const scope = scopes.at(-1);
	const held = [event.ctrlKey && "Mod", event.shiftKey && "Shift", event.altKey && "Alt"].filter(Boolean).join(",");
	for (const handler of scope?.handlers ?? []) {
		const fits = handler.key === null || handler.key.toLowerCase() === event.key.toLowerCase();
		if (fits && (handler.modifiers === null || handler.modifiers === held) && handler.func(event) === false) {
			event.preventDefault();
			return;
		}
	}
	if (event.key === "Escape") scope?.leave?.();
});

Modal.prototype.constructor__ = function begun() {
	this.containerEl.addClass("modal-container", "mod-dim");
	this.modalEl.addClass("modal");
	this.modalEl.setAttribute("role", "dialog");
	this.modalEl.setAttribute("aria-modal", "true");
	this.contentEl.addClass("modal-content");
	this.titleEl.addClass("modal-title");
	const header = createDiv({ cls: "modal-header" });
	header.append(this.titleEl);
	this.closeEl = createEl("button", { cls: "modal-close-button clickable-icon", attr: { "aria-label": "Close" } });
	setIcon(this.closeEl, "x");
	this.closeEl.addEventListener("click", () => this.close());
	this.modalEl.prepend(this.closeEl, header);
	const background = createDiv({ cls: "modal-bg" });
	background.addEventListener("click", () => this.close());
	this.containerEl.prepend(background);
	this.cameFrom = null;
};
Modal.prototype.setTitle = function setTitle(title) {
	this.titleEl.textContent = title;
	return this;
};
Modal.prototype.open = function open() {
	this.cameFrom = document.activeElement;
	document.body.append(this.containerEl);
	this.scope.leave = () => this.close();
	scopes.push(this.scope);
	this.modalEl.setAttribute("aria-label", this.titleEl.textContent || "Dialog");
	this.onOpen();
	if (this.titleEl.textContent) this.modalEl.setAttribute("aria-label", this.titleEl.textContent);
	if (!this.modalEl.contains(document.activeElement)) this.modalEl.querySelector("input, textarea, select, button:not(.modal-close-button)")?.focus();
};
Modal.prototype.close = function close() {
	if (!this.containerEl.isConnected) return;
	scopes.splice(scopes.indexOf(this.scope), 1);
	this.containerEl.remove();
	this.onClose();
	this.closeCallback?.();
	if (this.cameFrom?.isConnected) this.cameFrom.focus();
};

SuggestModal.prototype.constructor2__ = function begun() {
	this.modalEl.addClass("prompt");
	this.inputEl.addClass("prompt-input");
	this.inputEl.setAttribute("aria-label", "Search");
	this.resultContainerEl.addClass("prompt-results");
	this.chosen = 0;
	this.found = [];
	this.inputEl.addEventListener("input", () => this.suggest());
	this.scope.register([], "ArrowDown", () => this.choose(this.chosen + 1));
	this.scope.register([], "ArrowUp", () => this.choose(this.chosen - 1));
	this.scope.register([], "Enter", (event) => {
		if (this.found[this.chosen] !== undefined) this.selectSuggestion(this.found[this.chosen], event);
		return false;
	});
};
SuggestModal.prototype.open = function open() {
	this.inputEl.setAttribute("aria-label", this.inputEl.placeholder || "Search");
	Modal.prototype.open.call(this);
	this.inputEl.focus();
	return this.suggest();
};
SuggestModal.prototype.suggest = async function suggest() {
	this.found = [...await this.getSuggestions(this.inputEl.value)].slice(0, this.limit);
	this.resultContainerEl.empty();
	for (const value of this.found) {
		const row = this.resultContainerEl.createDiv({ cls: "suggestion-item" });
		this.renderSuggestion(value, row);
		row.addEventListener("click", (event) => this.selectSuggestion(value, event));
	}
	if (!this.found.length) this.resultContainerEl.createDiv({ cls: "suggestion-empty", text: this.emptyStateText });
	this.choose(0);
};
SuggestModal.prototype.choose = function choose(index) {
	this.chosen = Math.max(0, Math.min(index, this.found.length - 1));
	[...this.resultContainerEl.children].forEach((row, at) => row.toggleClass("is-selected", at === this.chosen));
	return false;
};
SuggestModal.prototype.selectSuggestion = function selected(value, event) {
	this.close();
	this.onChooseSuggestion(value, event);
};
mocks.FuzzySuggestModal.prototype.getSuggestions = function suggestions(query) {
	const wanted = query.toLowerCase();
	return this.getItems().filter((item) => this.getItemText(item).toLowerCase().includes(wanted)).map((item) => ({ item, match: { score: 0, matches: [] } }));
};
mocks.FuzzySuggestModal.prototype.renderSuggestion = function rendered({ item }, element) {
	element.setText(this.getItemText(item));
};

Menu.prototype.showAtPosition = function showAtPosition({ x, y }) {
	this.dom__.className = "menu";
	this.dom__.setAttribute("role", "menu");
	this.dom__.setCssStyles({ left: `${Math.max(0, Math.min(x, innerWidth - 240))}px`, top: `${Math.max(0, Math.min(y, innerHeight - 40 * this.items__.length))}px` });
	for (const item of this.items__) this.dom__.append(elementOf(item, this));
	document.body.append(this.dom__);
	this.keys = new Scope();
	this.keys.leave = () => this.hide();
	this.keys.register([], "ArrowDown", () => step(this.dom__, 1));
	this.keys.register([], "ArrowUp", () => step(this.dom__, -1));
	this.keys.register([], "Enter", () => {
		document.activeElement.click();
		return false;
	});
	this.cameFrom = document.activeElement;
	scopes.push(this.keys);
	this.away = (event) => {
		if (!this.dom__.contains(event.target)) this.hide();
	};
	document.addEventListener("pointerdown", this.away);
	step(this.dom__, 1);
	return this;
};
Menu.prototype.showAtMouseEvent = function showAtMouseEvent(event) {
	const box = event.currentTarget?.getBoundingClientRect?.() ?? event.target.getBoundingClientRect();
	return this.showAtPosition({ x: event.clientX || box.left, y: event.clientY || box.bottom });
};
Menu.prototype.hide = function hide() {
	if (!this.dom__.isConnected) return this;
	scopes.splice(scopes.indexOf(this.keys), 1);
	document.removeEventListener("pointerdown", this.away);
	this.dom__.remove();
	this.dom__.empty();
	this.onHideCallback?.();
	if (this.cameFrom?.isConnected) this.cameFrom.focus();
	return this;
};
Menu.prototype.close = Menu.prototype.hide;

function elementOf(item, menu) {
	if (!("title__" in item)) return createDiv({ cls: "menu-separator", attr: { role: "separator" } });
	const row = createDiv({ cls: "menu-item tappable", attr: { role: item.checked__ === null ? "menuitem" : "menuitemradio", tabindex: "-1" } });
	if (item.checked__ !== null) row.setAttribute("aria-checked", String(item.checked__));
	if (item.icon__) setIcon(row.createDiv({ cls: "menu-item-icon" }), item.icon__);
	row.createDiv({ cls: "menu-item-title" }).append(item.title__);
	row.toggleClass("is-disabled", item.disabled__);
	row.toggleClass("is-warning", item.warning__);
	row.addEventListener("click", (event) => {
		if (item.disabled__) return;
		menu.hide();
		item.onClick__?.(event);
	});
	return row;
}

function step(menu, by) {
	const rows = [...menu.querySelectorAll(".menu-item:not(.is-disabled)")];
	rows.at((rows.indexOf(document.activeElement) + by) % rows.length)?.focus();
	return false;
}

Notice.prototype.constructor__ = function begun() {
	const container = document.querySelector(".notice-container") ?? document.body.createDiv({ cls: "notice-container" });
	this.containerEl.className = "notice";
	this.messageEl.className = "notice-message";
	this.noticeEl.remove();
	container.append(this.containerEl);
	this.containerEl.addEventListener("click", () => this.hide());
	if (this.duration__) setTimeout(() => this.hide(), this.duration__);
	globalThis.told.push(this.messageEl.textContent);
};
Notice.prototype.setMessage = function setMessage(message) {
	this.messageEl.empty();
	this.messageEl.append(message);
	globalThis.told.push(this.messageEl.textContent);
	return this;
};
Notice.prototype.hide = function hide() {
	this.containerEl.remove();
};

// Panes and notes.

ItemView.prototype.constructor3__ = function begun() {
	this.containerEl.addClass("workspace-leaf-content");
	this.contentEl.addClass("view-content");
	this.headerEl = createDiv({ cls: "view-header" });
	this.headerEl.createDiv({ cls: "view-header-title" });
	this.actionsEl = this.headerEl.createDiv({ cls: "view-actions" });
	this.containerEl.prepend(this.headerEl);
};
ItemView.prototype.addAction = function addAction(icon, title, callback) {
	const button = createEl("button", { cls: "clickable-icon view-action", attr: { "aria-label": title } });
	setIcon(button, icon);
	button.addEventListener("click", callback);
	this.actionsEl.prepend(button);
	return button;
};

const EMPTY = { getViewType: () => "empty", getDisplayText: () => "New tab", containerEl: createDiv() };
WorkspaceLeaf.prototype.constructor3__ = function begun() {
	this.element = createDiv({ cls: "workspace-leaf" });
	this.view = EMPTY;
	this.isNote = false;
};
WorkspaceLeaf.prototype.setViewState = async function setViewState(state) {
	await this.view?.onClose?.();
	this.view?.containerEl.remove();
	this.view?.unload?.();
	this.viewState = { ...state };
	const creator = globalThis.theVault.plugin.views__.get(state.type);
	if (!creator) return;
	this.view = creator(this);
	this.view.containerEl.dataset.type = state.type;
	this.element.append(this.view.containerEl);
	(document.querySelector(this.isNote ? ".mod-root" : ".mod-right-split")).append(this.element);
	this.view.load();
	if (state.state) await this.view.setState(state.state, { history: false });
	await this.view.onOpen();
	this.view.headerEl.querySelector(".view-header-title").setText(this.view.getDisplayText());
	this.app__.workspace.setActiveLeaf(this);
};
WorkspaceLeaf.prototype.openFile = async function openFile(file) {
	const view = this.view instanceof MarkdownView ? this.view : MarkdownView.create2__(this);
	this.view = view;
	this.file = file;
	this.isNote = true;
	this.viewState = { type: "markdown", state: { file: file.path } };
	view.file = file;
	view.containerEl.dataset.type = "markdown";
	view.headerEl.querySelector(".view-header-title").setText(file.basename);
	this.element.append(view.containerEl);
	document.querySelector(".mod-root").append(this.element);
	view.setViewData(await this.app__.vault.read(file), true);
	this.app__.workspace.setActiveLeaf(this);
	this.app__.workspace.trigger("file-open", file);
};
WorkspaceLeaf.prototype.detach = function detach() {
	this.element.remove();
	const view = this.view;
	this.view = null;
	this.app__.workspace.removeLeaf__(this);
	void view?.onClose?.();
	view?.unload();
};

const setActiveLeaf = Workspace.prototype.setActiveLeaf;
Workspace.prototype.setActiveLeaf = function active(leaf) {
	if (leaf.view instanceof MarkdownView) this.activeEditor = leaf.view;
	setActiveLeaf.call(this, leaf);
};
Workspace.prototype.getActiveViewOfType = function activeView(type) {
	return this.activeLeaf?.view instanceof type ? this.activeLeaf.view : null;
};
Workspace.prototype.getActiveFile = function activeFile() {
	return this.activeEditor?.file ?? null;
};
Workspace.prototype.getMostRecentLeaf = function recent() {
	return this.leaves.findLast((leaf) => leaf.view instanceof MarkdownView) ?? null;
};
const getLeaf = Workspace.prototype.getLeaf;
Workspace.prototype.getLeaf = function noteLeaf(kind) {
	if (kind) return getLeaf.call(this, kind);
	return this.leaves.find((leaf) => leaf.view instanceof MarkdownView) ?? getLeaf.call(this, true);
};

// The editor of a note shows its text; one transaction is one step of undo, as in Obsidian.

Editor.prototype.constructor__ = function begun() {
	this.element = createEl("pre", { cls: "cm-content", attr: { tabindex: "0", role: "textbox", "aria-multiline": "true", "aria-label": "Note" } });
	globalThis.editors.push(this);
};
for (const name of ["setValue", "replaceRange", "undo", "redo"]) {
	const original = Editor.prototype[name];
	Editor.prototype[name] = function shown(...given) {
		original.apply(this, given);
		this.element.textContent = this.content;
		if (name !== "setValue") globalThis.theVault.keep(this);
	};
}
const transaction = Editor.prototype.transaction;
Editor.prototype.transaction = function once(changes) {
	const steps = [...this.undoStack];
	const before = this.content;
	transaction.call(this, { ...changes, changes: [...changes.changes ?? []].sort((one, other) => this.posToOffset(other.from) - this.posToOffset(one.from)) });
	if (this.content !== before) this.undoStack = [...steps, before];
};
MarkdownView.prototype.constructor7__ = function begun() {
	this.contentEl.append(this.editor.element);
};

Plugin.prototype.addRibbonIcon = function addRibbonIcon(icon, title, callback) {
	const button = document.querySelector(".side-dock-actions").createEl("button", { cls: "clickable-icon side-dock-ribbon-action", attr: { "aria-label": title } });
	setIcon(button, icon);
	button.addEventListener("click", callback);
	return button;
};
Plugin.prototype.addStatusBarItem = function addStatusBarItem() {
	return document.querySelector(".status-bar").createDiv({ cls: "status-bar-item" });
};
Component.prototype.registerEvent = function registerEvent(ref) {
	this.register(() => ref.e?.offref(ref));
};
