// The programs that are paired with elbowroom, and the code that pairs one more.
import { api } from "./api.js";
import { act, confirm, copyable, enc, h, named, panel, time } from "./dom.js";

const ROUTE = "/api/pairing";

export function pairingPanel(signal) {
	const list = h("ul.plain"), said = h("div", { role: "status" }), left = h("p.about", { role: "timer" });
	let known = null, timer = 0;

	// Shows what is paired and returns what was not there before.
	async function show() {
		const { data } = await api(ROUTE, { signal });
		const added = known && data.find(({ id }) => !known.has(id));
		known = new Set(data.map(({ id }) => id));
		list.replaceChildren(...data.map(row));
		return added;
	}

	const row = ({ id, name, created, last_used }) => h("li.test", h("span", name, " was paired ", time(created), last_used ? [", used ", time(last_used)] : ""),
		named(act("Revoke", async () => {
			if (!(await confirm(`Revoke ${name}?`, "It sees and changes nothing until it is paired anew.", "Revoke"))) return;
			await api(`${ROUTE}/${enc(id)}`, { method: "DELETE" });
			await show();
		}, "danger small"), `Revoke ${name}`));

	function end(words) {
		clearInterval(timer);
		left.textContent = "";
		said.textContent = words;
	}

	async function make() {
		const { code, expires } = await api(ROUTE, { method: "POST", body: {} });
		end("");
		said.append(copyable(code, "code"));
		const tick = async () => {
			const seconds = Math.round(expires - Date.now() / 1000);
			if (seconds <= 0) return end("The code is not valid now.");
			left.textContent = `Type it into the plugin’s settings: it is valid for ${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} more.`;
			const added = seconds % 2 ? null : await show().catch(() => null);
			return added && end(`${added.name} is paired.`);
		};
		timer = setInterval(tick, 1000);
		await tick();
	}

	signal.addEventListener("abort", () => clearInterval(timer));
	show().catch((error) => list.replaceChildren(h("li", error.message)));
	return panel("Obsidian: pairing",
		h("p.about", "Once you type a code into it, elbowroom's own plugin sees settings and changes those of compactions."),
		act("Make a code", make, "primary"), said, left, list);
}
