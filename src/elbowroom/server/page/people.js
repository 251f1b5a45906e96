// People with a token each, as owners see them: new ones, another role, a new token, and who has changed what.
import { api, keepToken, send } from "./api.js";
import { act, confirm, copyable, empty, enc, h, heading, panel, scrolling, time, toast } from "./dom.js";
import { editor } from "./records.js";

const ROUTE = "/api/users", PEOPLE = "#/settings/people";
const FORM = { required: ["name"], properties: {
	name: { type: "string", title: "Name" },
	role: { enum: ["member", "owner", "gateway"], default: "member", title: "Role",
		description: "A member has what is their own, an owner may do everything, a gateway such as Open WebUI speaks for others." },
} };

export async function peopleView({ main, signal }) {
	const [{ data: people }, { data: acts }] = await Promise.all([ROUTE, "/api/acts"].map((path) => api(path, { signal })));
	main.append(
		h("p.back", h("a", { href: "#/settings" }, "Settings")),
		heading("People", h("a.button.primary", { href: `${PEOPLE}/+new` }, "New person")),
		people.length ? h("ul.cards", { "aria-label": "People" }, people.map(({ id, name, role, last_used: used }) => h("li.card",
			h("h2", h("a.card-title", { href: `${PEOPLE}/${enc(id)}` }, name)),
			h("p.about", role, " · ", used ? ["used ", time(used)] : "never used"))))
			: empty("Nobody has a token besides yours", "With one each, people have their own conversations; settings stay yours."),
		...(acts.length ? [panel("Who changed what", scrolling("Changes", h("ul.plain", acts.map(({ at, by, did, what, keys }) => h("li",
				h("bdi", by ?? "Whoever has server.token"), ` ${did} `, h("bdi", what), keys.length ? `: ${keys.join(", ")}` : "", h("span.about", " · ", time(at)))))))] : []));
}

export async function personView({ main, id }) {
	const isNew = id === "+new", route = `${ROUTE}/${enc(id)}`;
	const { name, role } = (await api(ROUTE)).data.find((each) => each.id === id) ?? {};
	if (!isNew && !name) throw new Error("This token was revoked.");
	const leave = (words) => { toast(words); location.hash = PEOPLE; };
	let shown = null;
	const show = (whose, token) => {
		shown?.remove();
		shown = panel("Token", copyable(token, `token of ${whose}`),
			h("p.about", "It is shown only now. ", h("bdi", whose), " enters it as the API key of a chat program, and on this page."),
			h("p", h("a", { href: PEOPLE }, "Done")));
		main.querySelector(".head").after(shown);
		shown.querySelector("button").focus();
	};
	const renew = async () => {
		if (!(await confirm(`A new token for ${name}?`, "The one before ends at once, with what is being answered and was paired.", "New token"))) return;
		const { token } = await api(`${route}/token`, { method: "POST", body: {} });
		if ((await send("/api/live", { quiet: true })).status === 401) keepToken(token); // it is this tab's own
		show(name, token);
	};
	const form = editor({
		main, back: [PEOPLE, "People"], title: isNew ? "New person" : name, actions: isNew ? [] : [act("New token", renew)],
		form: {
			schema: FORM, root: {}, name: "people", values: { role }, isNew, only: isNew ? null : ["role"], verb: isNew ? "Make a token" : "Save",
			onsubmit: async (patch) => {
				if (!isNew) {
					if (patch.role) await api(route, { method: "PATCH", body: patch });
					return leave("Saved.");
				}
				const made = await api(ROUTE, { method: "POST", body: patch });
				form.element.parentElement.remove();
				show(made.name, made.token);
			},
		},
		remove: !isNew && { verb: "Revoke", title: `Revoke the token of ${name}?`, text: "What is being answered ends, what was paired too. What was said stays, for a new token of that name.",
			run: async () => { await api(route, { method: "DELETE" }); leave("Revoked."); } },
	});
}
