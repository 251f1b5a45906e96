// Joins the modules of src into the one main.js that Obsidian loads, in the order of their imports; types and
// descriptions stay behind: the check of types reads them, and people who read the sources. Run with --check, it only tells
// whether main.js is what it would write.
import { readFileSync, writeFileSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";

const SOURCE = new URL("./src/", import.meta.url);
const TARGET = new URL("./main.js", import.meta.url);
const IMPORT = /^import \{([^}]*)\} from "(obsidian|\.\.?\/[\w./]+)";\n/gm;
const TOLD = /^[ \t]*\/\*\*[^]*?\*\/\n+|\/\*\*[^]*?\*\/ ?/gm;
const DECLARED = /^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)/gm;

/** Adds a module after those that it imports. */
function add(name, modules) {
	if (modules.has(name)) return;
	modules.set(name, null); // a circle of imports ends here
	const text = readFileSync(new URL(name, SOURCE), "utf8");
	const imports = [...text.matchAll(IMPORT)].map(([, names, from]) => ({ from, names: names.split(",").map((each) => each.trim()).filter(Boolean) }));
	for (const { from } of imports) if (from !== "obsidian") add(posix.join(posix.dirname(name), from), modules);
	modules.delete(name);
	modules.set(name, { imports, body: text.replace(IMPORT, "").replace(TOLD, "").replace(/^export (?:default )?/gm, "").trim() });
}

/** Fails where two modules declare the same name, or where something is imported in a form that is not understood. */
function check(modules) {
	const owners = new Map();
	for (const [name, { body }] of modules) {
		const odd = /^(?:import|export) .*/m.exec(body);
		if (odd) throw new Error(`${name}: "${odd[0]}" is no form that build.mjs joins.`);
		for (const [, declared] of body.matchAll(DECLARED)) {
			if (owners.has(declared)) throw new Error(`${declared} is declared in ${owners.get(declared)} and in ${name}.`);
			owners.set(declared, name);
		}
	}
}

export function joined() {
	const modules = new Map();
	add("main.js", modules);
	check(modules);
	const taken = new Set([...modules.values()].flatMap(({ imports }) => imports.filter(({ from }) => from === "obsidian").flatMap(({ names }) => names)));
	const parts = [...modules].map(([name, { body }]) => `// ${name}\n\n${body}\n`);
	return [
		"// The plugin of elbowroom, joined from obsidian/src by obsidian/build.mjs.",
		'"use strict";\n',
		`const {\n\t${[...taken].sort().join(",\n\t")},\n} = require("obsidian");\n`,
		...parts,
		"module.exports = ElbowroomPlugin;\n",
	].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
	if (!process.argv.includes("--check")) writeFileSync(TARGET, joined());
	else if (readFileSync(TARGET, "utf8") !== joined()) {
		console.error("main.js is not what the sources make: run npm run build.");
		process.exit(1);
	}
}
