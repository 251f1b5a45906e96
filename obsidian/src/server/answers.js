// What elbowroom answers, looked at once: whatever comes after may rely on its form.

/**
 * @template T
 * @typedef {(value: unknown) => T} Reader Returns what a value is; throws Odd where it is something else.
 */

class Odd extends Error {}

/** @type {Reader<string>} */
const text = (value) => typeof value === "string" ? value : odd("a text", value);
/** @type {Reader<number>} */
const number = (value) => typeof value === "number" && Number.isFinite(value) ? value : odd("a number", value);
/** @type {Reader<boolean>} */
const truth = (value) => typeof value === "boolean" ? value : odd("true or false", value);
/** @type {Reader<Record<string, unknown>>} */
const record = (value) => isObject(value) ? value : odd("an object", value);
const nothing = () => null;
/** @type {Reader<Record<string, string>>} */
const texts = (value) => Object.fromEntries(Object.entries(record(value)).map(([key, each]) => [key, text(each)]));

/**
 * @param {string} wanted
 * @param {unknown} value
 * @returns {never}
 */
function odd(wanted, value) {
	throw new Odd(`${wanted} was expected, not ${(JSON.stringify(value) ?? "nothing").slice(0, 40)}`);
}

/**
 * @template T, U
 * @param {Reader<T>} read
 * @param {U} otherwise
 * @returns {Reader<T | U>} What also takes nothing at all, which stands for another value.
 */
function or(read, otherwise) {
	return (value) => value === undefined || value === null ? otherwise : read(value);
}

/**
 * @template T
 * @param {Reader<T>} read
 * @returns {Reader<T[]>}
 */
function listOf(read) {
	return (value) => Array.isArray(value) ? value.map(read) : odd("a list", value);
}

/**
 * @template {Record<string, Reader<any>>} S
 * @param {S} shape
 * @returns {Reader<{ [K in keyof S]: ReturnType<S[K]> }>} What else it has stays.
 */
function object(shape) {
	return (value) => {
		const read = { ...record(value) };
		for (const [key, reader] of Object.entries(shape)) {
			try {
				read[key] = reader(read[key]);
			} catch (error) {
				throw error instanceof Odd ? new Odd(`${key}: ${error.message}`) : error;
			}
		}
		return /** @type {any} */ (read);
	};
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
export function isObject(value) {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * @template T
 * @param {Reader<T>} read
 */
const pageOf = (read) => object({ data: listOf(read), has_more: or(truth, false), next: or(text, null) });

const size = or(number, 0);
const fill = object({ tokens: size, window: size, trigger: or(number, null), stop_at: or(number, null) });
const compaction = object({
	at: number, before: size, after: size, rung: or(text, ""), summary: or(text, null), messages_removed: or(number, null), undone: or(number, null),
});
const call = object({ id: text, function: object({ name: text, arguments: text }) });
/** @type {Reader<string | import("./server.js").ContentPart[]>} */
const content = (value) => typeof value === "string" ? value : /** @type {any} */ (listOf(object({ type: text, text: or(text, undefined) }))(value));
const message = object({ role: text, content: or(content, null), tool_calls: or(listOf(call), undefined), tool_call_id: or(text, undefined) });
const row = object({
	id: text, number: size, created: number, turn: or(text, null), turn_status: or(text, null), calls: or(texts, {}), hidden: or(truth, false),
	reasoning: or(text, null), recalled: or(listOf(object({ role: text, text })), []), message,
});
const conversation = object({
	id: text, agent: or(text, ""), title: or(text, ""), updated: number, status: or(text, "idle"), context: or(fill, null), compactions: or(listOf(compaction), []),
	works_ahead: or(truth, false),
});

/** What each kind of request is answered with. */
export const answers = {
	nothing,
	health: object({ version: or(text, "") }),
	models: object({ data: listOf(object({ id: text, name: or(text, ""), context_length: size, loaded_context_length: size })) }),
	paired: object({ token: text }),
	settings: object({ values: object({ compaction: record }), locked: or(texts, {}) }),
	agents: object({ data: listOf(object({ id: text, name: or(text, ""), enabled: or(truth, true), tools: or(listOf(text), []) })) }),
	doctor: object({ data: listOf(object({ name: text, state: text, told: or(text, ""), remedy: or(text, null) })) }),
	conversation,
	conversations: pageOf(conversation),
	messages: pageOf(row),
	taken: object({ id: text, running: or(truth, true) }),
	queued: object({ data: listOf(object({ id: text, message })), dropped: or(listOf(object({ id: text, message })), []) }),
	compacted: object({ compacted: or(truth, true), after: or(number, null) }),
	changes: object({ data: listOf(object({ id: text, agent: or(text, ""), what: text, when: number, notes: listOf(text) })) }),
	undone: object({ told: or(text, "") }),
	counted: object({ input_tokens: number }),
	completion: object({
		choices: listOf(object({ message: or(object({ content: or(text, ""), reasoning_content: or(text, "") }), null), finish_reason: or(text, "stop") })), usage: or(record, null),
	}),
};

/**
 * Reads an answer. Returns why it cannot be read in the place of what it is.
 * @template T
 * @param {Reader<T>} read
 * @param {unknown} value
 * @returns {{ value: T, problem: "" } | { value: null, problem: string }}
 */
export function readAs(read, value) {
	try {
		return { value: read(value), problem: "" };
	} catch (error) {
		if (error instanceof Odd) return { value: null, problem: error.message };
		throw error;
	}
}
