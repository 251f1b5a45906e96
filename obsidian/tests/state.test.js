import { describe, expect, it } from "vitest";
import { nextState } from "../src/chat/state.js";

/** What follows in each state on: ask, begun, end, read, busy, close. */
const TABLE = {
	new: ["asked", "new", "new", "new", "new", "closed"],
	asked: ["asked", "writing", "new", "asked", "asked", "closed"],
	unread: ["unread", "unread", "unread", "idle", "elsewhere", "closed"],
	idle: ["writing", "idle", "idle", "idle", "elsewhere", "closed"],
	writing: ["writing", "writing", "idle", "writing", "writing", "closed"],
	elsewhere: ["elsewhere", "elsewhere", "elsewhere", "idle", "elsewhere", "closed"],
	closed: ["closed", "closed", "closed", "closed", "closed", "closed"],
};
const CHANGES = ["ask", "begun", "end", "read", "busy", "close"];

describe("the state of a conversation", () => {
	it.each(Object.entries(TABLE))("that is %s follows the table", (state, follows) => {
		expect(CHANGES.map((change) => nextState(state, change))).toEqual(follows);
	});
});
