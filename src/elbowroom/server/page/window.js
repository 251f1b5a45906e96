// Loads a model of LM Studio again with a larger window, by LM Studio's own routes, which elbowroom hands on.
import { api } from "./api.js";
import { ask, button, busy, h, number, toast } from "./dom.js";

const ROUTE = "/api/v1/models", GB = 1e9;

// The windows to choose from: twice the present one, and so on, up to the largest that the model takes.
function larger(window, most) {
	const found = [];
	for (let size = window * 2; size < most; size *= 2) found.push(size);
	return most > window ? [...found, most] : [];
}

// A button that is only there for a model that LM Studio can load with more; `changed` is called when it has.
export function windowButton({ provider, id, window, max_window: most, isStudio }, changed) {
	const sizes = isStudio && most ? larger(window, most) : [];
	if (!sizes.length) return null;
	const pressed = button("Load with a larger window", () => busy(pressed, () => loadAnew(provider, id, window, sizes, changed)), "small");
	return pressed;
}

async function loadAnew(provider, id, window, sizes, changed) {
	const { models } = await api(ROUTE);
	const names = [id, `${provider}/${id}`];
	const found = models.find(({ key, loaded_instances: loaded = [] }) => names.includes(key) || loaded.some((instance) => names.includes(instance.id)));
	if (!found) throw new Error(`LM Studio does not list ${id}. Load it in LM Studio.`);
	const select = h("select", { id: "window" }, sizes.map((size) => h("option", { value: size }, `${number(size)} tokens`)));
	const size = found.size_bytes ? `The model itself takes ${(found.size_bytes / GB).toFixed(1)} GB. ` : "";
	const body = h("div.field", h("label", { for: "window" }, "Window"), select,
		h("p.help", `${size}Twice the window takes twice the memory for what is read. Where there is too little, LM Studio says so, and the model comes back with ${number(window)} tokens. Running answers end.`));
	if ((await ask({ title: `Load ${id} with a larger window`, body, focus: select, actions: [["Cancel", "", "quiet"], ["Load", "ok", "primary"]] })) !== "ok") return;
	for (const instance of found.loaded_instances) await api(`${ROUTE}/unload`, { method: "POST", body: { instance_id: instance.id } });
	const load = (tokens) => api(`${ROUTE}/load`, { method: "POST", body: { model: found.key, context_length: tokens } });
	try {
		await load(Number(select.value));
		toast(`Loaded with ${number(select.value)} tokens.`);
	} catch (error) {
		await load(window);
		throw error;
	} finally {
		changed();
	}
}
