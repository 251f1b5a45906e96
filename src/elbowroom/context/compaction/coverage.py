"""Which words of a removed part stay? Greedy weighted coverage, without a rule of any language.

A unit is a sentence, a line, or a call with its arguments. Its words weigh the more the rarer they are in this
conversation and the more tokens they take; what stays anyway is covered. Picking again and again the unit that adds
most new weight for its tokens comes within 1 - 1/e of the best choice (Nemhauser, Wolsey and Fisher, 1978; for
summaries Lin and Bilmes, 2011).
"""

import heapq
import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count, groupby
from operator import itemgetter
from typing import Final, Literal

from elbowroom.context.compaction.calls import INDENT
from elbowroom.context.compaction.division import (
    QUOTING,
    WORDS_KEPT,
    Speaker,
    carried_by,
    is_summary,
    quotation,
    said_in,
    speaker_in,
)
from elbowroom.context.divisible import LONGEST_TOKEN, without_note
from elbowroom.context.transcript import Group, Message, called, readable, size_in_bytes, written

Teller = Speaker | Literal["summary"]
IMPORTANCE: Final[dict[Teller, float]] = {"user": 1.0, "summary": 0.8, "assistant": 0.4, "tool": 0.4, "call": 0.4}
"""What a word weighs by who said it."""
UNSPACED: Final = r"\u0e00-\u0eff\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters of scripts that put no spaces between words: there two letters in a row stand for a word."""
BETWEEN: Final = rf"\s,;:!?()\[\]{{}}\"'`“”„«»‘’、。，；：！？（）「」『』…|<>=*{UNSPACED}"
WORD: Final = re.compile(rf"[{UNSPACED}]+|[^{BETWEEN}._-][^{BETWEEN}]*(?<![._-])")
FIRST_UNSPACED: Final = re.compile(rf"[{UNSPACED}]")
AT_ENDS: Final = "._-"
"""Signs that stand within words, but at no end of one."""
SMALL: Final = bytes(ord(re.sub(f"[{BETWEEN}]", " ", chr(byte).lower())) for byte in range(128)) + bytes(
    range(128, 256)
)
"""What each byte of ASCII is in words: a small letter, or a space where it stands between them."""
HAS_DIGIT: Final = re.compile(r"\d").search
STOPS: Final = {stop: f"{stop.rstrip()}\n" for stop in ("! ", "? ", "؟ ", "। ", "。", "！", "？")}
FULL_STOP: Final = re.compile(r"\. (?<!(?<!\S)\d\. )(?<!(?<!\S)\d\d\. )")
"""What ends a sentence: the stop after one or two digits may be that of an ordinal number, as in "30. Juni"."""
DIGITS: Final = b"0123456789"
LONGEST: Final = 400
"""Characters of a unit; a longer line is cut between words."""
LONGEST_READ: Final = 40_000
"""Characters at the beginning and at the end of a message that are read: the event loop waits."""
MOST_MISSES: Final = 32
MOST_ALIKE: Final = 4
"""The rarest names of a unit, and for each the newest units with it, among which one about the same is looked for."""
LEAST_LINE: Final = 4
"""Tokens that the shortest line takes."""


@dataclass(slots=True, eq=False)
class Unit:
    """A stretch of text that stays whole or goes; `line` is how a summary quotes it, under a `heading`."""

    speaker: Teller
    text: str
    line: str
    words: Set[str]
    heading: str = ""
    place: int | None = None
    """Which line of the earlier summaries tells it, if any does."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The units of removed groups, each with the place where it was said last.

    `newer` has for a unit the newest one that is about the same; `known` are the words of the groups that stay.
    """

    units: dict[Unit, int]
    newer: dict[Unit, Unit]
    known: set[str]


class Words(dict[str, str]):
    """The words between spaces, each with what it is without the signs at its ends."""

    def __missing__(self, word: str) -> str:
        """Return a word that was not looked for yet, and remember it."""
        self[word] = core = word.strip(AT_ENDS)
        return core


def words_of(text: str, known: Words | None = None) -> set[str]:
    """Return the words of a text in small letters, and of scripts without spaces each two letters in a row.

    Those in texts that are read with the same `known` words are the same objects, which takes less time and memory.
    """
    if text.isascii():
        small = text.encode().translate(SMALL).decode()
        found = set(map((Words() if known is None else known).__getitem__, small.split()))
        found.discard("")
        return found
    words: list[str] = WORD.findall(text.casefold())
    if not FIRST_UNSPACED.search(text):
        return set(words)
    found = set()
    for word in words:
        if FIRST_UNSPACED.match(word):
            found.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            found.add(word)
    return found


def sentences_of(text: str) -> list[str]:
    """Return the sentences and lines of a text, in their order; some may be blank."""
    text = FULL_STOP.sub(".\n", text)
    for stop, ending in STOPS.items():
        text = text.replace(stop, ending)
    return text.split("\n")


class Coverage:
    """The units of a conversation's groups, given in their order, with what their words weigh; `size` counts a text."""

    def __init__(self, groups: Iterable[Group], size: Callable[[str], int]) -> None:
        self._size = size
        self._lines = count()
        self._words = Words()
        self._units = {id(group): (group, tuple(_units_of(group, self._lines, self._words))) for group in groups}
        units = [unit for _, inside in self._units.values() for unit in inside]
        said = Counter(chain.from_iterable(unit.words for unit in units))
        rarities = {times: math.log((len(units) + 1) / times) ** 2 for times in set(said.values())}
        with_digits = {word for word in said if not word.isalpha() and HAS_DIGIT(word)}
        # a figure or name takes more tokens, since it cannot be guessed from its beginning
        tokens = {word: (len(word) + 3) // 4 + 2 * (word in with_digits) for word in said}
        self._weights = Counter(
            {word: rarities[times] * (tokens[word] if tokens[word] < 4 else 4) for word, times in said.items()}
        )
        most = len(units) ** 0.5
        self._names = {word for word, times in said.items() if 1 < times <= most} - with_digits
        common = {word for word, times in said.items() if times > most} - with_digits
        frames = [_frame_of(unit, common) for unit in units]
        alike = Counter(frames)
        whole = math.log(len(units) + 1)
        self._factors = {
            unit: (1 + at / len(units)) * (1 - math.log(alike[frame]) / whole) ** 2
            for at, (unit, frame) in enumerate(zip(units, frames, strict=True))
        }

    def units(self, groups: Iterable[Group]) -> list[Unit]:
        """Return the units of groups, in their order."""
        return [unit for group in groups for unit in self._units_in(group)]

    def _units_in(self, group: Group) -> tuple[Unit, ...]:
        """Return the units of a group, which are looked for once; parts of messages come later than the others."""
        if id(group) not in self._units:
            self._units[id(group)] = group, tuple(_units_of(group, self._lines, self._words))
        return self._units[id(group)][1]

    def words(self, groups: Iterable[Group]) -> set[str]:
        """Return the words of groups."""
        return set().union(*(unit.words for unit in self.units(groups)))

    def weight(self, words: Set[str]) -> float:
        """Return what words weigh together; those of nobody in the conversation weigh nothing."""
        return sum(map(self._weights.__getitem__, words))

    def lost(self, groups: Sequence[Group], messages: Iterable[Message]) -> tuple[int, list[str]]:
        """Return how many units of groups are the user's, and which have most of their weight in no message of these.

        The weightiest comes first; what was said twice counts once.
        """
        words = self._in_messages(messages)
        units = {unit.text: unit for unit in self.units(groups) if unit.speaker == "user"}
        missing = ((self.weight(unit.words - words), unit) for unit in units.values())
        lost = [(weight, unit.text) for weight, unit in missing if weight and 2 * weight > self.weight(unit.words)]
        return len(units), [text for _, text in sorted(lost, key=itemgetter(0), reverse=True)]

    def _in_messages(self, messages: Iterable[Message]) -> set[str]:
        """Return the words of messages; those of groups are known, unless more or less than their messages was read."""
        unread = {id(message): message for message in messages}
        words: set[str] = set()
        for group, units in self._units.values():
            if id(group.messages[0]) in unread and not (group.unshortened or group.note):
                words.update(*(unit.words for unit in units))
                for message in group.messages:
                    unread.pop(id(message), None)
        return words.union(*(words_of(written(message), self._words) for message in unread.values()))

    def candidates(self, groups: Sequence[Group], staying: Sequence[Group] = ()) -> Candidates:
        """Return what may be chosen of removed groups, beside others that stay."""
        units = self._once(groups, {unit.text for unit in self.units(staying)})
        return Candidates(units, self._successors(units), self.words(staying))

    def standing(self, groups: Iterable[Group]) -> list[Unit]:
        """Return the lines that earlier summaries among groups tell, in their order, each once."""
        lines = [(unit.place, unit) for unit in self._once(groups, set()) if unit.place is not None]
        return [unit for _, unit in sorted(lines, key=itemgetter(0))]

    def beginning(self, lines: Sequence[Unit], room: int) -> Sequence[Unit]:
        """Return the first of these lines, about as many as take so many tokens."""
        ends = [*accumulate(map(_bytes_of, lines))]
        whole = self._tokens(lines)
        return lines[: bisect(ends, room * ends[-1] // whole)] if whole else ()

    def worth(self, candidates: Candidates, told: str, chosen: Iterable[Unit]) -> float:
        """Return how much a text `told` and chosen units add to what stays.

        What weighs much for the tokens that it takes counts more; of two units about the same the older adds nothing.
        """
        words, total = set(candidates.known), 0.0
        for unit in (Unit("summary", told, told, words_of(told, self._words)), *chosen):
            if unit not in candidates.newer:
                new = self.weight(unit.words - words)
                total += new**2 * self._factor(unit, 0.0, new)
                words |= unit.words
        return total

    def chosen(
        self, candidates: Candidates, told: str, room: int, for_user: int, beginning: Sequence[Unit] = ()
    ) -> list[Unit]:
        """Return the units that stay: those of a `beginning`, and others in their order in so many tokens.

        What stays anyway, and what the text `told` says, is known. All that the user has said stays where it takes no
        more than `for_user` tokens. Those of a summary are all that it stands for, as far as that is known. Of two
        about the same the newer comes first.
        """
        units, newer = candidates.units, dict(candidates.newer)
        known = candidates.known | words_of(told, self._words)
        picked = _standing(beginning, newer, known)
        room += self._tokens(beginning) - self._tokens(picked)
        known = known.union(*(unit.words for unit in picked))
        fresh = {unit: unit.words - known for unit in units}
        weights = {unit: self.weight(new) for unit, new in fresh.items()}
        factors = {unit: self._factor(unit, self.weight(unit.words & known), weights[unit]) for unit in units}
        own = [unit for unit in units if unit.speaker == "user" and unit.text not in told and unit not in picked]
        if sum(len(unit.line) for unit in own) <= LONGEST_TOKEN * for_user:
            cost = self._tokens(own)
            if cost <= min(for_user, room):
                room -= cost
                picked.update(own)
                known.update(*(unit.words for unit in own))
        queue = [(-factors[unit] * weights[unit], -units[unit], unit) for unit in units if unit not in picked]
        heapq.heapify(queue)
        uncounted = ""
        misses = 0
        while queue and room >= LEAST_LINE and misses < MOST_MISSES:
            _, place, unit = heapq.heappop(queue)
            fresh[unit] = fresh[unit] - known
            worth = factors[unit] * self.weight(fresh[unit])
            if queue and worth < -queue[0][0]:  # what was picked since has covered a part of it: look at it again later
                heapq.heappush(queue, (-worth, place, unit))
                continue
            if worth <= 0:
                break
            later = newer.pop(unit, unit)
            first = unit if later in picked else later
            line = f"{first.line}\n"
            if size_in_bytes(uncounted + line) > room:  # a token has a byte or more: until here there is room for all
                room -= self._size(uncounted)
                uncounted = ""
                if size_in_bytes(line) > room and self._size(line) > room:
                    misses += 1
                    continue
            uncounted += line
            picked.add(first)
            known |= first.words
            if first is not unit:
                heapq.heappush(queue, (-worth, place, unit))
        places = {unit: units[unit] if unit.place is None else unit.place for unit in picked}
        return sorted(picked, key=lambda unit: (unit.place is None, places[unit]))

    def _tokens(self, units: Iterable[Unit]) -> int:
        """Return how many tokens the lines of units take."""
        return self._size("".join(f"{unit.line}\n" for unit in units))

    def _once(self, groups: Iterable[Group], but: Set[str]) -> dict[Unit, int]:
        """Return the units of groups, each text once and none of these, with the places where they were said last."""
        found: dict[str, tuple[Unit, int]] = {}
        for place, unit in enumerate(self.units(groups)):
            if unit.text not in but:
                first, _ = found.pop(unit.text, (unit, place))
                found[unit.text] = first, place
        return dict(found.values())

    def _successors(self, units: Iterable[Unit]) -> dict[Unit, Unit]:
        """Return for units, given in their order, the newest of the same speaker that is about the same.

        Of a summary, which tells what all have said, it may be anybody's. It has most of the weight of the unit's
        names: words without figures that are rare, and said again. Whether it replaces the unit no code knows; but the
        older one never stands where there is room for one of both alone.
        """
        newest: dict[str, list[Unit]] = {}
        found: dict[Unit, Unit] = {}
        for unit in reversed([*units]):
            names = unit.words & self._names
            least = self.weight(names) / 2
            rarest = heapq.nlargest(MOST_ALIKE, names, key=lambda word: (self._weights[word], word))
            for later in chain.from_iterable(newest.get(name, ()) for name in rarest):
                is_told = unit.speaker in (later.speaker, "summary")
                if is_told and self.weight(names & later.words) > least:
                    found[unit] = later
                    break
            for word in names:
                if len(known := newest.setdefault(word, [])) < MOST_ALIKE:
                    known.append(unit)
        return found

    def _factor(self, unit: Unit, told: float, new: float) -> float:
        """Return by what the weight of a unit's new words counts: by who said it, for each token that its line takes.

        A newer unit counts up to twice an old one, one that is all about what the last turns have `told` twice, and one
        that differs from many in its figures and rare words alone, like the lines of a log, the less the more they are.
        """
        about = told / (told + new) if told else 0.0
        size = 2 + size_in_bytes(unit.line) / 4
        return IMPORTANCE[unit.speaker] * (1 + about) * self._factors.get(unit, 2.0) / size


def _bytes_of(unit: Unit) -> int:
    return size_in_bytes(unit.line) + 1


def _standing(beginning: Iterable[Unit], newer: Mapping[Unit, Unit], known: Set[str]) -> set[Unit]:
    """Return the first units of a beginning, and the newer ones about the same whose words are not known yet.

    Together they take no more bytes than the whole beginning.
    """
    left = sum(map(_bytes_of, beginning))
    standing: set[Unit] = set()
    for unit in beginning:
        later = newer.get(unit, unit)
        both = {unit} if later.words <= known else {unit, later}
        left -= sum(map(_bytes_of, both - standing))
        if left < 0:
            break
        standing |= both
    return standing


def _frame_of(unit: Unit, common: Set[str]) -> Hashable:
    """Return what a unit has in common with those that differ in figures and rare words alone, whoever says them."""
    if frame := unit.words & common:
        return frozenset(frame), len(unit.words)
    return unit.text.encode("utf-8", "surrogatepass").translate(None, DIGITS)


def quoted(groups: Sequence[Group], size: Callable[[str], int], room: int) -> list[str]:
    """Return the lines that quote what is worth most of groups, in their order, in so many tokens."""
    coverage = Coverage(groups, size)
    return [unit.line for unit in coverage.chosen(coverage.candidates(groups), "", room, room // 2)]


def _units_of(group: Group, lines: Iterator[int], words: Words) -> Iterator[Unit]:
    """Yield the units of a group: of a summary its `lines`, which are numbered, and what it stands for, if known.

    What a pruning agent has told comes behind what was quoted until it told again: it has read that.
    """
    if not is_summary(group):
        for message in group.unshortened or group.messages:
            yield from _units_in_message(message, words, group.note)
        return
    said = [(next(lines), *line) for line in said_in(carried_by([group]).body)]
    places = {line: place for place, heading, line in said if heading in QUOTING}
    units = (unit for message in group.unshortened for unit in _units_in_message(message, words))
    found = [replace(unit, heading=WORDS_KEPT, place=places.get(unit.line)) for unit in units]
    ends = {unit.place: end for end, unit in enumerate(found, 1)}
    in_order: list[Unit] = []
    told: list[Unit] = []
    begin = end = 0
    above: Speaker = "user"
    for is_quoted, block in groupby(said, lambda line: line[1] in QUOTING):
        if not is_quoted:
            in_order += [*found[begin:end], *told]
            begin, told = end, []
        for place, heading, line in block:
            if place in ends:
                end = max(end, ends[place])
                continue
            speaker, text = speaker_in(line)
            is_below_call = above == "call" and line.startswith(INDENT)
            above = above if is_below_call else speaker
            is_told = speaker == "user" and not is_quoted
            text = line if is_told else text
            unit = Unit("summary" if is_told else speaker, text, line, words_of(text, words), heading, place)
            if is_told and not is_below_call:
                told.append(unit)
            else:
                yield unit
    yield from chain(in_order, found[begin:], told)


def _units_in_message(message: Message, words: Words, note: str = "") -> Iterator[Unit]:
    """Yield the units of a message without the note at its end, and without ours on what is left out of it."""
    role = message.get("role")
    speaker: Speaker = "tool" if role == "tool" else "assistant" if role == "assistant" else "user"
    for text in _pieces_of(without_note(readable(message).removesuffix(note))):
        yield Unit(speaker, text, quotation(speaker, text), words_of(text, words))
    for name, arguments in called(message):
        for text in _pieces_of(f"{name} {arguments}".replace("\\n", "\n")):
            yield Unit("call", text, quotation("call", text), words_of(text, words))


def _pieces_of(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text, of a very long one those at its beginning and end."""
    if len(text) > 2 * LONGEST_READ:
        text = f"{text[:LONGEST_READ]}\n{text[-LONGEST_READ:]}"
    for sentence in sentences_of(text):
        is_plain = sentence.isprintable() and "  " not in sentence
        rest = sentence.strip() if is_plain else " ".join(sentence.split())
        while len(rest) > LONGEST:
            end = rest.rfind(" ", LONGEST // 2, LONGEST) + 1 or LONGEST
            yield rest[:end].strip()
            rest = rest[end:]
        if rest.strip("-*#=_~|`>. "):
            yield rest
