// What a person chose in this vault. All else is a setting of elbowroom itself, and is kept there.
import { isObject } from "../server/server.js";

export const SECRET = "elbowroom-token";

/**
 * @typedef {object} Preferences
 * @property {string} address Where elbowroom is, as the person typed it.
 * @property {string} secret The name of the token in Obsidian's secret storage, empty for none.
 * @property {string} token The token itself, only where this Obsidian has no secret storage.
 * @property {string} user Whose conversations these are, where elbowroom keeps several people apart; empty for nobody's.
 * @property {string} agent The agent or model that answers new conversations, empty for the first there is.
 * @property {boolean} noticesAsPopups Whether compactions are told in Obsidian's notices too.
 * @property {"none" | "selection" | "note"} noteContext What of the note at work goes along with a question.
 * @property {Record<string, string>} seen elbowroom's settings when they were last read, shown while it is away.
 */

/** @type {Readonly<Preferences>} */
export const DEFAULTS = Object.freeze({
	address: "http://127.0.0.1:2345",
	secret: "",
	token: "",
	user: "",
	agent: "",
	noticesAsPopups: true,
	noteContext: "none",
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
 * Returns the token that goes with each request, empty for none.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
export function tokenOf(app, preferences) {
	return (preferences.secret && app.secretStorage?.getSecret(preferences.secret)) || preferences.token;
}

/**
 * Moves a token out of the plugin's file, where another Obsidian has left it. Returns whether there was one to move.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 */
export function moveToken(app, preferences) {
	const { secret, token } = preferences;
	if (!token || !app.secretStorage) return false;
	if (secret && app.secretStorage.getSecret(secret)) preferences.token = "";
	else keepToken(app, preferences, token);
	return true;
}

/**
 * Puts the token where it belongs: into Obsidian's secret storage, so that the vault has only its name.
 * @param {import("obsidian").App} app
 * @param {Preferences} preferences
 * @param {string} token
 */
export function keepToken(app, preferences, token) {
	if (!app.secretStorage) {
		preferences.token = token;
		return;
	}
	app.secretStorage.setSecret(SECRET, token); // never over a secret that the person chose: others may use it
	preferences.secret = SECRET;
	preferences.token = "";
}
