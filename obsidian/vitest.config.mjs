import { defineConfig } from "vitest/config";

export default defineConfig({
	test: {
		environment: "jsdom",
		include: ["tests/*.test.js"],
		setupFiles: ["obsidian-test-mocks/vitest-setup"],
		server: { deps: { inline: ["@obsidian-typings", "obsidian-dev-utils"] } },
	},
});
