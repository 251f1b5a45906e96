// What a text changes in another one, part by part, so that each part can be taken or left.

const MOST_STEPS = 4_000_000;
const PIECE = /[^\n]*?(?:[.!?…]+["'”’)\]]*(?:[ \t]+|(?=\n))|[。！？]+[」』”’]*|\n+|$)/g;

/** @typedef {{ before: string, after: string, isTaken: boolean }} Part Text that stays where both are the same. */

/**
 * Returns the parts of a change; joined, the `before` of all is the old text and the `after` the new one. Sentences and
 * lines that stand in both belong to no change.
 * @param {string} before
 * @param {string} after
 * @returns {Part[]}
 */
export function partsOfChange(before, after) {
	const [old, fresh] = [piecesOf(before), piecesOf(after)];
	if (old.length * fresh.length > MOST_STEPS) return [{ before, after, isTaken: true }];
	const same = commonLengths(old, fresh);
	const width = fresh.length + 1;
	/** @type {Part[]} */
	const parts = [];
	for (let one = 0, other = 0; one < old.length || other < fresh.length;) {
		const [gone, come] = [old[one], fresh[other]];
		if (gone !== undefined && gone === come) {
			add(parts, gone, gone, true);
			one += 1;
			other += 1;
		} else if (come !== undefined && (gone === undefined || (same[one * width + other + 1] ?? 0) > (same[(one + 1) * width + other] ?? 0))) {
			add(parts, "", come, false);
			other += 1;
		} else {
			add(parts, gone ?? "", "", false);
			one += 1;
		}
	}
	return parts;
}

/**
 * Returns the text that comes of it: the new one of each part that is taken, the old one of all others.
 * @param {Part[]} parts
 */
export function takenText(parts) {
	return parts.map(({ before, after, isTaken }) => (isTaken ? after : before)).join("");
}

/** @param {string} text */
function piecesOf(text) {
	return text.match(PIECE)?.filter(Boolean) ?? [];
}

/**
 * @param {Part[]} parts
 * @param {string} before
 * @param {string} after
 * @param {boolean} isSame
 */
function add(parts, before, after, isSame) {
	const last = parts.at(-1);
	if (last && (last.before === last.after) === isSame) {
		last.before += before;
		last.after += after;
	} else parts.push({ before, after, isTaken: true });
}

/**
 * Returns how many pieces the ends of two lists have in common, from each pair of places on.
 * @param {string[]} old
 * @param {string[]} fresh
 */
function commonLengths(old, fresh) {
	const width = fresh.length + 1;
	const lengths = new Uint16Array((old.length + 1) * width);
	for (let one = old.length - 1; one >= 0; one--) {
		for (let other = fresh.length - 1; other >= 0; other--) {
			const place = one * width + other;
			lengths[place] = old[one] === fresh[other] ? (lengths[place + width + 1] ?? 0) + 1 : Math.max(lengths[place + width] ?? 0, lengths[place + 1] ?? 0);
		}
	}
	return lengths;
}
