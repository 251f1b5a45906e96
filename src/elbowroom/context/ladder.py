"""Compacts a conversation: rung after rung, until the result is good by the code's own measure.

plan -> one retry with reasons -> a digest made by code -> system and the last messages -> nothing helps.
Whatever a rung gives is counted here and taken only if it is smaller and at or below the target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Compaction, Rung, build, inner_summary, state_of, summary_message
from elbowroom.context.digest import digest
from elbowroom.context.division import Division, NumberedGroup, divide, tail_starts
from elbowroom.context.facts import lost_facts
from elbowroom.context.prune_answer import Plan, Rewrite, Unusable, read_prune_answer
from elbowroom.context.prune_order import Wishes, listing_order, suffix_order
from elbowroom.context.repair import repair
from elbowroom.context.transcript import Group, Message, Transcript, messages_of

MOST_SUMMARY, LEAST_SUMMARY = 2000, 200
FACTS_SHARE = 10  # one part in ten of the window


class PrunerFailed(Exception):
    """The pruning agent gave no answer; the message says why in words for the log."""


class Counter(Protocol):
    """Counts tokens as the model's engine will."""

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the size of the whole request with these messages, tools and template included."""

    def text(self, text: str) -> int:
        """Return the size of a bare text."""


class Pruner(Protocol):
    """A pruning agent that can be asked; raises PrunerFailed."""

    @property
    def window(self) -> int:
        """Its window in tokens."""

    @property
    def shares_prefix(self) -> bool:
        """Tell whether it is the conversation's own model, so that the engine has read the conversation already."""

    async def ask(self, messages: Sequence[Message], cap: int) -> str:
        """Return its answer to these messages, at most `cap` tokens long."""


@dataclass(frozen=True, slots=True)
class Cannot:
    """No rung reached the target; `needed` is the smallest prompt that was reached."""

    needed: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """One compaction's means. `target` bounds prompt and reserve together; `turns` the tail's length in user turns."""

    budget: Budget
    target: int
    counter: Counter
    pruner: Pruner
    wishes: Wishes
    turns: int = 1
    on_rung: Callable[[str], None] = lambda reason: None

    async def climb(self, transcript: Transcript) -> Compaction | Cannot:
        """Return the compacted conversation from the first rung that is good enough."""
        before = await self.counter.prompt(transcript.messages)
        division = await self._divide(transcript)
        if division.old:
            reasons: list[str] = []
            rungs: tuple[Rung, ...] = ("plan", "retry")
            for rung in rungs:
                done = await self._by_pruner(transcript, division, reasons, rung, before)
                if isinstance(done, Compaction):
                    return done
                reasons.append(done)
                self.on_rung(done)
        if division.old or division.summaries:
            done = await self._by_digest(division, before)
            if isinstance(done, Compaction):
                return done
            self.on_rung(done)
        return await self._by_last_messages(transcript, before)

    @property
    def cap(self) -> int:
        """Return how long a summary may be."""
        return max(LEAST_SUMMARY, min(MOST_SUMMARY, self.budget.window // 8))

    async def _divide(self, transcript: Transcript) -> Division:
        """Take the longest tail that leaves room for a summary below the target."""
        divisions = [divide(transcript, tails_from=start) for start in tail_starts(transcript.groups, self.turns)]
        for division in divisions:
            if division.old and await self._occupied(build(division, "", ())) + self.cap <= self.target:
                return division
        return divisions[-1]

    async def _by_pruner(
        self, transcript: Transcript, division: Division, reasons: Sequence[str], rung: Rung, before: int
    ) -> Compaction | str:
        try:
            answer = read_prune_answer(await self._ask(transcript, division, reasons))
        except PrunerFailed as error:
            return str(error)
        match answer:
            case Unusable():
                return answer.reason
            case Rewrite():
                return await self._accept_rewrite(division, answer, rung, before)
            case Plan():
                return await self._accept_plan(division, answer, rung, before)

    async def _ask(self, transcript: Transcript, division: Division, reasons: Sequence[str]) -> str:
        if self.pruner.shares_prefix:
            order = suffix_order(division.old, self._size, self.wishes, self.cap, reasons)
            messages = [*_answered(transcript).messages, {"role": "user", "content": order}]
            if await self.counter.prompt(messages) + self.cap < self.pruner.window:
                return await self.pruner.ask(messages, self.cap)
        return await self._ask_in_parts(division, reasons)

    async def _ask_in_parts(self, division: Division, reasons: Sequence[str]) -> str:
        so_far = "\n\n".join(inner_summary(group) for group in division.summaries)
        answer = ""
        for part in self._parts(division.old, so_far):
            answer = await self.pruner.ask(listing_order(part, so_far, self.wishes, self.cap, reasons), self.cap)
            match read_prune_answer(answer):
                case Plan(retain, summary):
                    so_far = f"{retain}\n\n{summary}"
                case Unusable(reason):
                    raise PrunerFailed(reason)
                case Rewrite():
                    return answer
        return answer

    def _parts(self, old: Sequence[NumberedGroup], so_far: str) -> list[list[NumberedGroup]]:
        """Return the old groups in runs that fit the pruner's window beside the order and an earlier summary."""
        order = "".join(message["content"] for message in listing_order([], so_far, self.wishes, self.cap))
        room = self.pruner.window - self.counter.text(order) - 3 * self.cap
        parts: list[list[NumberedGroup]] = [[]]
        used = 0
        for numbered in old:
            size = min(self._size(numbered.group), room)
            if parts[-1] and used + size > room:
                parts.append([])
                used = 0
            parts[-1].append(_shortened(numbered, room, self.counter.text))
            used += size
        return parts

    async def _accept_plan(self, division: Division, plan: Plan, rung: Rung, before: int) -> Compaction | str:
        length = self.counter.text(plan.retain + plan.summary)
        if length > 2 * self.cap:
            return f"The summary was too long: {length} tokens of at most {self.cap}."
        wanted = [numbered for numbered in division.old if numbered.id in plan.keep]
        kept: list[NumberedGroup] = []
        for numbered in reversed(wanted):
            trial = build(division, self._summary(division, plan, [numbered, *kept]), [numbered, *kept])
            if await self._occupied(trial) <= self.target:
                kept = [numbered, *kept]
        summary = self._summary(division, plan, kept)
        return await self._accept(build(division, summary, kept), division, rung, before, summary)

    async def _accept_rewrite(self, division: Division, rewrite: Rewrite, rung: Rung, before: int) -> Compaction | str:
        ours = [*messages_of(division.tail), *messages_of([numbered.group for numbered in division.pinned])]
        theirs = [
            message
            for message in rewrite.messages
            if message.get("role") in ("user", "assistant", "tool") and message not in ours
        ]
        messages = [
            *messages_of(division.system),
            *messages_of([numbered.group for numbered in division.pinned]),
            *repair(theirs),
            *messages_of(division.tail),
        ]
        return await self._accept(messages, division, rung, before, rewrite.summary)

    async def _by_digest(self, division: Division, before: int) -> Compaction | str:
        earlier = "\n\n".join(inner_summary(group) for group in division.summaries)
        groups = [numbered.group for numbered in division.old]
        done: Compaction | str = "There was no room for a digest."
        for cap in (self.cap, self.cap // 2, self.cap // 4):
            kept = self._beginning(earlier, cap // 2)
            told = digest(groups, self._fits_into(cap - self.counter.text(kept)))
            summary = summary_message(kept, told, self._facts(groups, kept + told, cap), state_of(division.tail))
            done = await self._accept(build(division, summary, ()), division, "digest", before, summary)
            if isinstance(done, Compaction):
                return done
        return done

    def _fits_into(self, room: int) -> Callable[[str], bool]:
        return lambda text: self.counter.text(text) <= room

    async def _by_last_messages(self, transcript: Transcript, before: int) -> Compaction | Cannot:
        """Keep system and pinned messages and as many of the last five messages as fit, whole groups of them."""
        smallest = before
        for start in [*tail_starts(transcript.groups, 0)]:
            division = divide(transcript, tails_from=start)
            messages = build(division, "", ())
            after = await self.counter.prompt(messages)
            smallest = min(smallest, after)
            if self.budget.occupied(after) <= max(self.target, self.budget.trigger) and after < before:
                return Compaction(tuple(messages), "last messages", before, after, len(division.old), "")
        return Cannot(smallest)

    async def _accept(
        self, messages: list[Message], division: Division, rung: Rung, before: int, summary: str
    ) -> Compaction | str:
        after = await self.counter.prompt(messages)
        if after >= before:
            return f"The result was not smaller: {after} tokens after {before}."
        if self.budget.occupied(after) > self.target:
            return f"The result was too large: {after} tokens with a target of {self.target} including the reply."
        return Compaction(tuple(messages), rung, before, after, len(division.old), summary)

    def _summary(self, division: Division, plan: Plan, kept: Sequence[NumberedGroup]) -> str:
        removed = [numbered.group for numbered in division.old if numbered not in kept]
        stays = [*(numbered.group for numbered in (*kept, *division.pinned)), *division.tail, *division.system]
        remaining = "\n".join([plan.retain, plan.summary, *(group.text for group in stays)])
        facts = self._facts([*removed, *division.summaries], remaining, self.budget.window // FACTS_SHARE)
        return summary_message(plan.retain, plan.summary, facts, state_of(division.tail))

    def _facts(self, removed: Sequence[Group], remaining: str, room: int) -> list[str]:
        facts: list[str] = []
        for fact in lost_facts(removed, remaining):
            size = self.counter.text(f"- {fact}\n")
            if size > room:
                continue
            room -= size
            facts.append(fact)
        return facts

    def _beginning(self, text: str, room: int) -> str:
        while text and self.counter.text(text) > room:
            text = text[: len(text) * 3 // 4]
        return text

    def _size(self, group: Group) -> int:
        return self.counter.text(group.text)

    async def _occupied(self, messages: Sequence[Message]) -> int:
        return self.budget.occupied(await self.counter.prompt(messages))


def _answered(transcript: Transcript) -> Transcript:
    """Drop calls that nobody has answered from the end: the pruning agent must not go on with them."""
    if not transcript.groups or transcript.groups[-1].kind != "tools" or len(transcript.groups[-1].messages) > 1:
        return transcript
    *before, last = transcript.groups
    text = {key: value for key, value in last.messages[0].items() if key != "tool_calls"}
    return Transcript((*before, Group((text,))) if text.get("content") else tuple(before))


def _shortened(numbered: NumberedGroup, room: int, size: Callable[[str], int]) -> NumberedGroup:
    """Return the group as it is, or its text cut to what the pruner can read at all."""
    text = numbered.group.text
    if size(text) <= room:
        return numbered
    share = max(200, int(len(text) * room / size(text) * 0.8))
    cut = f"{text[: share // 2]}\n[... {len(text) - share} characters left out ...]\n{text[-share // 2 :]}"
    return NumberedGroup(numbered.id, Group(({**numbered.group.messages[0], "content": cut},)))
