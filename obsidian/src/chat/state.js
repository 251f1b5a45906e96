// The one state that a conversation has, and which one follows on what happens.

/**
 * @typedef {"new" | "asked" | "unread" | "idle" | "writing" | "elsewhere" | "closed"} State
 * `new`: elbowroom does not know it. `asked`: its first question is on the way. `unread`: elbowroom has it, but not all of
 * it is here, so nothing may be asked: that would be without what was said before. `idle`: all of it is here. `writing`: an
 * answer is being written here, `elsewhere` for another program. `closed`: nothing is asked any more.
 */

/** @typedef {"ask" | "begun" | "end" | "read" | "busy" | "close"} Change `read` and `busy`: elbowroom has told of it, and of an answer. */

/** @type {Record<State, Partial<Record<Change, State>>>} */
const NEXT = {
	new: { ask: "asked" },
	asked: { begun: "writing", end: "new" },
	unread: { read: "idle", busy: "elsewhere" },
	idle: { ask: "writing", busy: "elsewhere" },
	writing: { end: "idle" },
	elsewhere: { read: "idle" },
	closed: {},
};

/**
 * Returns the state that follows; what cannot happen in a state changes nothing.
 * @param {State} state
 * @param {Change} change
 * @returns {State}
 */
export function nextState(state, change) {
	return change === "close" ? "closed" : NEXT[state][change] ?? state;
}
