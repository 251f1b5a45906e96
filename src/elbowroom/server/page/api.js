// Requests to this server, and the token where it asks for one.
import { ask, banner, h } from "./dom.js";
import { heard } from "./presence.js";

const TOKEN = "elbowroom.token", USER = "elbowroom.user";
const inMemory = {};
let asking = null;

class ApiError extends Error {
	constructor(status, error, fields) {
		super(error?.message || `The server answered with status ${status}.`);
		Object.assign(this, { status, code: error?.code ?? null, param: error?.param ?? null, fields: fields ?? [] });
	}
}

function kept(key) {
	try { return sessionStorage.getItem(key) ?? ""; } catch { return inMemory[key] ?? ""; }
}

function keep(key, value) {
	inMemory[key] = value;
	try { sessionStorage.setItem(key, value); } catch { /* kept in memory, until the page is closed */ }
}

const token = () => kept(TOKEN);
export const keepToken = (given) => keep(TOKEN, given);

// Whose conversations are shown: as chat programs name their user, empty for those without a name.
export const user = () => kept(USER);
export const setUser = (name) => keep(USER, name.replace(/[^ -~\xa0-\xff]/g, ""));

// Sends a request and returns the response, whatever its status; a 401 asks for the token first, unless it is `quiet`.
export async function send(path, { method = "GET", body, headers = {}, signal, quiet = false } = {}) {
	for (;;) {
		const used = token();
		const init = { method, signal, headers: { ...headers }, cache: "no-store", redirect: "error" };
		if (used) init.headers.Authorization = `Bearer ${unescape(encodeURIComponent(used))}`; // headers hold bytes
		if (user()) init.headers["X-Elbowroom-User"] = user();
		if (body !== undefined) {
			init.headers["Content-Type"] = "application/json";
			init.body = JSON.stringify(body);
		}
		let response;
		try {
			response = await fetch(path, init);
		} catch (error) {
			if (error.name === "AbortError") throw error;
			heard(false);
			throw new ApiError(0, { message: "elbowroom does not answer. Is it still running?" });
		}
		heard(true);
		if (response.status !== 401) return response;
		if (token() !== used) continue;
		if (quiet && !asking) return response;
		asking ??= askForToken(used !== "").finally(() => { asking = null; });
		if (!(await asking)) return response;
	}
}

export async function api(path, options) {
	const response = await send(path, options);
	if (response.status === 204) return null;
	if (response.ok && response.headers.get("Content-Type")?.startsWith("text/plain")) return response.text();
	let value = null;
	try { value = await response.json(); } catch { /* no JSON: the status says it */ }
	if (response.ok) return value;
	if (value?.error?.code === "not_for_members") {
		document.body.classList.add("is-member"); // what is for owners is left away
		banner(h("p", value.error.message));
	}
	throw new ApiError(response.status, value?.error, value?.fields);
}

async function askForToken(wasWrong) {
	const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true, "aria-describedby": "token-help" });
	const body = h("div.field",
		h("label", { for: "token" }, "Token"), input,
		h("p.help", { id: "token-help" },
			wasWrong ? "That is not the token. " : "", "server.token, or your own; only this tab keeps it."));
	const answer = await ask({ title: "This elbowroom asks for its token", body, focus: input, actions: [["Not now", "", "quiet"], ["Use token", "ok", "primary"]] });
	if (answer !== "ok" || !input.value) return false;
	keepToken(input.value.trim());
	return true;
}

// Saves what a route answers with as a file; a link could not send the token.
export async function download(path) {
	const response = await send(path);
	if (!response.ok) throw new ApiError(response.status, (await response.json().catch(() => null))?.error);
	const named = /filename\*=UTF-8''([^;]+)|filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "");
	const address = URL.createObjectURL(await response.blob());
	h("a", { href: address, download: named?.[1] ? decodeURIComponent(named[1]) : named?.[2] ?? "conversation" }).click();
	setTimeout(() => URL.revokeObjectURL(address), 10000);
}
