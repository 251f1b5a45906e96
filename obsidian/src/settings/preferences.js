// What a person chose in this vault. All else is a setting of elbowroom itself, and is kept there.
import { isObject } from "../server/answers.js";

export const SECRET = "elbowroom-token";

/**
 * @typedef {object} Preferences
 * @property {string} address Where elbowroom is, as the person typed it.
 * @property {string} secret The name of the token in Obsidian's secret storage, empty for none.
 * @property {string} token The token itself, only where this Obsidian has no secret storage.
 * @property {string} origin Where the token belongs to, such as http://127.0.0.1:2345: nowhere else is it sent.
 * @property {string} user Whose conversations these are, where elbowroom keeps several people apart; empty for nobody's.
 * @property {string} agent The agent or model that answers new conversations, empty for the first there is.
 * @property {boolean} noticesAsPopups Whether compactions are told in Obsidian's notices too.
 * @property {"none" | "selection" | "note"} noteContext What of the note at work goes along with a question.
 * @property {string} promptFolder The folder of the person's own prompts, empty for none.
 * @property {Record<string, string>} seen elbowroom's settings when they were last read, shown while it is away.
 */

/** @type {Readonly<Preferences>} */
export const DEFAULTS = Object.freeze({
	address: "http://127.0.0.1:2345",
	secret: "",
	token: "",
	origin: "",
	user: "",
	agent: "",
	noticesAsPopups: true,
	noteContext: "none",
	promptFolder: "Prompts",
	seen: {},
});

/**
 * Returns preferences from what a file holds, whatever that is: what has another type is as by default, and what a newer
 * version has added stays.
 * @param {unknown} data
 * @returns {Preferences}
 */
export function preferencesFrom(data) {
	const kept = isObject(data) ? data : {};
	const same = Object.entries(DEFAULTS).filter(([key, value]) => typeof kept[key] === typeof value && isObject(kept[key]) === isObject(value));
	const preferences = /** @type {Preferences} */ ({ ...kept, ...DEFAULTS, ...Object.fromEntries(same.map(([key]) => [key, kept[key]])) });
	if (!["none", "selection", "note"].includes(preferences.noteContext)) preferences.noteContext = DEFAULTS.noteContext;
	return preferences;
}

/**
 * Returns the address before all routes, from what people paste: with /v1, a slash or a whole route behind it, or
 * without http:// before it. Empty where it is no address.
 * @param {string} typed
 */
export function baseAddress(typed) {
	const text = typed.trim();
	if (!text) return "";
	try {
		const url = new URL(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`);
		if (!/^https?:$/.test(url.protocol) || !url.hostname) return "";
		const path = url.pathname.replace(/\/+/g, "/").replace(/(\/v1|\/chat|\/completions|\/models|\/)+$/, "");
		return url.origin + path;
	} catch {
		return "";
	}
}

/**
 * Returns the origin of an address, empty where it is none.
 * @param {string} typed
 */
export function originOf(typed) {
	const address = baseAddress(typed);
	return address ? new URL(address).origin : "";
}

/**
 * Returns the token that goes with each request, empty for none: it is sent to the address that it was made for, and to no
 * other one that a person, a synchronisation or another plugin sets later.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
export function tokenOf(app, preferences) {
	return originOf(preferences.address) === preferences.origin ? keptToken(app, preferences) : "";
}

/**
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
export function keptToken(app, { secret, token }) {
	return (secret && app.secretStorage?.getSecret(secret)) || token;
}

/**
 * Moves a token out of the plugin's file, where another Obsidian has left it, and notes for which address it is where an
 * earlier version has not. Returns whether something is to be saved.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
export function moveToken(app, preferences) {
	const { secret, token, origin } = preferences;
	const isBound = origin !== "" || !keptToken(app, preferences);
	if (!isBound) preferences.origin = originOf(preferences.address);
	if (!token || !app.secretStorage) return !isBound;
	if (secret && app.secretStorage.getSecret(secret)) preferences.token = "";
	else storeToken(app, preferences, token);
	return true;
}

/**
 * Puts the token where it belongs: into Obsidian's secret storage, so that the vault has only its name.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 * @param {string} token
 */
function storeToken(app, preferences, token) {
	if (!app.secretStorage) {
		preferences.token = token;
		return;
	}
	app.secretStorage.setSecret(SECRET, token); // never over a secret that the person chose: others may use it
	preferences.secret = SECRET;
	preferences.token = "";
}

/**
 * Keeps the token that the elbowroom at the address of now has given.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 * @param {string} token
 */
export function keepToken(app, preferences, token) {
	storeToken(app, preferences, token);
	preferences.origin = originOf(preferences.address);
}
