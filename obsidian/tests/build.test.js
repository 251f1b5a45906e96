import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";

const read = (name) => readFileSync(name, "utf8");
const main = read("main.js");

describe("what is installed", () => {
	it("is what the sources make", () => {
		execFileSync(process.execPath, ["build.mjs", "--check"]);
	});
	it("has every module", () => {
		expect(readdirSync("src", { recursive: true }).filter((name) => name.endsWith(".js")).filter((name) => !main.includes(`\n// ${name}\n`))).toEqual([]);
	});
	it("needs nothing but Obsidian", () => {
		expect([...main.matchAll(/\brequire\(([^)]*)\)/g)].map(([, what]) => what)).toEqual(['"obsidian"']);
		expect(main).not.toMatch(/^import |^export /m);
	});
	it("has the version that every file names", () => {
		const { version, minAppVersion } = JSON.parse(read("manifest.json"));
		expect(JSON.parse(read("package.json")).version).toBe(version);
		expect(JSON.parse(read("versions.json"))[version]).toBe(minAppVersion);
	});
});
