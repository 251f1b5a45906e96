import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
	resolve: { alias: [{ find: /^obsidian$/, replacement: fileURLToPath(new URL("tests/obsidian.js", import.meta.url)) }] },
	test: { environment: "jsdom", include: ["tests/*.test.js"], setupFiles: ["tests/setup.js"] },
});
