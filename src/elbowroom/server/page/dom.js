// Elements, words and numbers. Text only ever becomes a text node, whoever wrote it.

// Where words of people and models stand, in whatever script: the browser finds their direction.
const PEOPLES = new Set(["textarea", "input", "said", "card-title", "excerpt", "h1", "quiet-text", "summary", "room-title", "trouble"]);

// h("p.about", { id: "x" }, "text", other): an element with classes, attributes, listeners and children.
export function h(selector, ...given) {
	const [tag, ...classes] = selector.split(".");
	const element = document.createElement(tag);
	if (classes.length) element.className = classes.join(" ");
	const attributes = given[0]?.constructor === Object ? given.shift() : {};
	for (const [name, value] of Object.entries(attributes)) {
		if (value === false || value === null || value === undefined) continue;
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (name === "value" || (name in element && value === true)) element[name] = value;
		else element.setAttribute(name, value);
	}
	if (PEOPLES.has(tag) || [...element.classList].some((name) => PEOPLES.has(name))) element.dir = "auto";
	element.append(...given.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== true));
	return element;
}

// What others have sent, as text: an object among the children would be taken for attributes.
export const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export const enc = encodeURIComponent;
export const put = (element, name, value) => (value ? element.setAttribute(name, value) : element.removeAttribute(name));
export const number = (value) => Number(value).toLocaleString("en-US");
export const percent = (share) => `${Math.round(share * 100)} %`;

function ago(seconds) {
	const passed = Math.max(0, Date.now() / 1000 - seconds);
	if (passed < 60) return "just now";
	for (const [unit, size] of [["minute", 60], ["hour", 3600], ["day", 86400]].reverse()) {
		const count = Math.floor(passed / size);
		if (count >= 1) return count > 30 && unit === "day" ? moment(seconds) : `${count} ${unit}${count === 1 ? "" : "s"} ago`;
	}
	return moment(seconds);
}

export const moment = (seconds) =>
	new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

export const time = (seconds) => h("time", { datetime: new Date(seconds * 1000).toISOString(), title: moment(seconds) }, ago(seconds));

// A section with a title of its own, in a box.
export function panel(title, ...children) {
	const id = `title-${title.replace(/\W+/g, "-")}`;
	return h("section.panel", { "aria-labelledby": id }, h("h2", { id, tabindex: "-1" }, title), ...children);
}

// Names and their values.
export const facts = (pairs) => h("dl.facts", pairs.map(([name, value]) => h("div", h("dt", name), h("dd", value))));

// A box that scrolls, by the keyboard too.
export const scrolling = (label, ...children) => h("div.boxed", { tabindex: "0", role: "group", "aria-label": label }, ...children);

export function named(element, label) {
	element.setAttribute("aria-label", label);
	return element;
}

// A field to search in, whose name is what stands in it.
export function searchField(placeholder, given) {
	return h("input", { type: "search", "aria-label": placeholder, placeholder, maxlength: "400", autocomplete: "off", ...given });
}

// Says something on top of every view.
export function banner(...words) {
	const place = document.getElementById("banner");
	place.replaceChildren(...words);
	place.hidden = !words.length;
}

let toastTimer = 0;

// Says what was done, in a place of its own that covers nothing.
export function toast(text, kind = "") {
	const place = document.getElementById("toast");
	place.className = `shown ${kind}`;
	place.textContent = text;
	clearTimeout(toastTimer);
	toastTimer = setTimeout(() => { place.className = ""; }, 6000 + 60 * text.length);
}

// What went wrong, beside what it concerns; `again` is offered where another try may help.
export function trouble(error, again) {
	return h("div.trouble", { role: "alert" },
		h("p", error.message || String(error)),
		again && button("Try again", again));
}

// Cuts a text at what is searched for: hits are `mark` elements, the rest stays text.
export function marked(text, search) {
	if (!search) return [text];
	const found = text.toLowerCase(), wanted = search.toLowerCase();
	if (found.length !== text.length) return [text]; // letters whose small form is longer: no place would be right
	const parts = [];
	let at = 0;
	for (let hit = found.indexOf(wanted); hit >= 0; hit = found.indexOf(wanted, at)) {
		parts.push(text.slice(at, hit), h("mark", text.slice(hit, hit + wanted.length)));
		at = hit + wanted.length;
	}
	return [...parts, text.slice(at)];
}

export const empty = (title, ...words) => h("div.empty", h("p.empty-title", title), h("p", ...words));

export const heading = (text, ...actions) =>
	h("div.head", h("h1", { tabindex: "-1" }, text), actions.length ? h("div.actions", ...actions) : null);

export const button = (text, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, text);

// A button whose action takes time.
export const act = (text, run, kind = "") => button(text, (event) => busy(event.currentTarget, run), kind);

// Runs an action of a button, which cannot be pressed twice meanwhile; failures are said.
export async function busy(pressed, action) {
	if (pressed.getAttribute("aria-busy") === "true") return undefined;
	pressed.setAttribute("aria-busy", "true");
	try {
		return await action();
	} catch (error) {
		toast(error.message, "bad");
		return undefined;
	} finally {
		pressed.removeAttribute("aria-busy");
	}
}

let dialogs = 0;

// Shows a modal dialog and returns its close value: "" where it was left. The browser keeps the focus inside.
export function ask({ title, body, actions, focus }) {
	const id = `dialog-${++dialogs}`;
	const before = document.activeElement;
	return new Promise((resolve) => {
		const form = h("form", { method: "dialog" },
			h("h2", { id }, title), body,
			h("div.actions", actions.map(([text, value, kind]) => value ? h("button", { value, class: kind }, text) : button(text, () => dialog.close(""), kind))));
		const dialog = h("dialog", { "aria-labelledby": id }, form);
		dialog.addEventListener("cancel", () => { dialog.returnValue = ""; });
		dialog.addEventListener("close", () => {
			dialog.remove();
			if (before instanceof HTMLElement && before.isConnected) before.focus();
			resolve(dialog.returnValue);
		});
		document.body.append(dialog);
		dialog.showModal();
		(focus ?? form.querySelector(".actions button")).focus();
	});
}

export const confirm = async (title, text, verb) =>
	(await ask({ title, body: h("p", text), actions: [["Cancel", "", "quiet"], [verb, "yes", "danger"]] })) === "yes";

function copyButton(text, label) {
	const pressed = button("Copy", async () => {
		const done = await copied(text);
		pressed.textContent = done ? "Copied" : "Press Ctrl+C";
		toast(done ? `Copied: ${label}.` : "Copying is not allowed here: select the text and copy it.");
		setTimeout(() => { pressed.textContent = "Copy"; }, 2500);
	}, "small");
	return named(pressed, `Copy ${label}`);
}

async function copied(text) {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		const area = h("textarea.offscreen", { value: text, "aria-hidden": "true" });
		document.body.append(area);
		area.select();
		const done = document.execCommand("copy");
		area.remove();
		return done;
	}
}

export const copyable = (text, label) =>
	h("div.copyable", h("pre", { tabindex: "0", role: "region", "aria-label": label }, text), copyButton(text, label));
