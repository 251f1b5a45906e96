"""Recalls the compactions of earlier turns."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.request import Caller
from elbowroom.agents.tools.recall import Past
from elbowroom.agents.turn.entries import Entries
from elbowroom.agents.turn.keeping import Keeping
from elbowroom.agents.turn.state import CompactionLock, CompactionNotes
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import is_summary_message
from elbowroom.context.conversation import KeptTurn
from elbowroom.context.ledger import (
    PRUNED,
    SHORTENED,
    UNCHANGED,
    Chain,
    Entry,
    LedgerRows,
    Written,
)
from elbowroom.context.prompt import Item, Prompt, items_of, recalled, stands_for
from elbowroom.context.put_back import Expanded, expanded
from elbowroom.context.transcript import Message

log = logging.getLogger(__name__)
MUCH_LARGER: Final = (5, 4)
"""From this ratio on a window is much larger than another: what was compacted for one is too much or little for it."""

Measured = Callable[[Sequence[Message]], Awaitable[int]]


class Recall:
    """Recalls the compactions of one conversation, known by the chain over its client's messages.

    `rows` keep the entries of the ledger. `of_client` are the client's messages as they came, and `items` the same with
    the keys of their `chain`, which may have been made before. For a caller that may have them, messages of the `kept`
    turns that the client has never seen are put back. `keeping` keeps new ones.
    """

    def __init__(
        self,
        rows: LedgerRows,
        notes: CompactionNotes,
        caller: Caller,
        agent: str,
        messages: Sequence[Message],
        kept: TurnRecorder | None = None,
        chain: Chain | None = None,
    ) -> None:
        self.entries = Entries(rows, notes)
        self._notes = notes
        self._caller = caller
        self._kept = kept if caller.may_have_hidden else None
        self.of_client = list(messages)
        self._found: tuple[int, Entry] | None = None
        self._came_back: dict[str, str] = {}  # with earlier messages, by their keys
        self._turns: Sequence[KeptTurn] = ()  # that were put back, the oldest first
        self.lost: KeptTurn | None = None
        """The last answer where the client has lost it."""
        self._has_begun = False
        self.is_continued = True
        """Whether an answer at the end of the messages is to be continued: then nothing is put back before it."""
        self.sent_with: str | None = None
        """The key of the compaction with which the model was asked last; empty for the whole, None where unknown."""
        self.chain = chain or Chain.of(caller.keeps_as, agent, messages)
        self.items = items_of(messages, self.chain)
        self.keeping = Keeping(self.entries, self.chain, self.of_client, caller.may_have_hidden)

    @property
    def recalled_place(self) -> int:
        """Return the place in the chain up to which that compaction stands; -1 where none was recalled."""
        return _place_of(self._found)

    async def pins(self) -> dict[str, Message]:
        """Return the client's messages that the person has pinned, by their keys."""
        keys = await self._kept.pins() if self._kept is not None else frozenset()
        return {item.key: item.message for item in self.items if item.key in keys} if keys else {}

    @property
    def has_summary(self) -> bool:
        """Tell whether a compaction was recalled that has taken messages out, and not only shortened some."""
        entry = self.keeping.replaces
        if entry is None:
            return False
        return entry.rung not in (PRUNED, SHORTENED, UNCHANGED) or any(map(is_summary_message, entry.messages))

    async def past(self, prompt: Prompt, tool: str) -> Past:
        """Return all that was said in the conversation, and what of it the model no longer has; `tool` tells it."""
        kept = await self._kept.branch() if self._kept is not None else []
        said: list[tuple[Message, float | None]] = [(one.message, one.at) for one in kept]
        said = said or [(message, None) for message in (*self.of_client, *prompt.appended)]
        return Past.of(said, prompt.messages, tool)

    def lock(self) -> CompactionLock:
        """Return the lock by which only one of several requests with the same messages compacts them."""
        return self._notes.lock(self.chain.keys[-1] if self.chain.keys else self.chain.seed)

    async def recall(
        self, prompt: Prompt, budget: Budget, size: Measured, *, waits: bool = True
    ) -> tuple[Prompt, bool]:
        """Return the prompt with the compaction of the longest beginning in its place, and whether there was one.

        After it, or everywhere where there was none, the messages are put back that the client never saw. A compaction
        for a window of much another size is taken only where the conversation no longer fits as the model had it last,
        and one for a smaller window only where more than half of this one would be filled without. Without `waits` only
        a conversation that does so waits for a store that is opening.
        """
        found = await self._fitting(budget, size, waits=waits)
        if found is not None:
            self._found, self.keeping.replaces = found, found[1]
            self._came_back = await self.entries.notes_of(self.chain.keys[found[0] + 1 :])
        elif self._turns:
            return prompt, False  # it has been put back already
        prompt = self._begun(prompt, await self._put_back(self._found))
        if found is not None and self._kept is not None and found[1].rung not in (PRUNED, SHORTENED):
            self._kept.reused(found[1].before, found[1].after)
        return prompt, found is not None

    async def put_back(self, prompt: Prompt) -> Prompt:
        """Put back the messages that the client never saw, once, where no window is known and nothing compacted."""
        return prompt if self._has_begun else self._begun(prompt, await self._put_back(None))

    def note_summarised(self, said: Message, before: int, after: int) -> None:
        """Note a compaction of the conversation with its answer, which nobody has waited for."""
        self._notes.ended.note_summarised(self.keeping.answer_key(said), before, after)

    def note_unfinished(self, said: Message) -> None:
        """Note that a limit has ended the answer, which the client has as `said`."""
        self._notes.ended.note_unfinished(self.keeping.answer_key(said))

    def has_unfinished_answer(self, said: Message | None) -> bool:
        """Tell whether a limit has ended the last answer: `said`, else that before the client's last message."""
        return self._notes.ended.has_unfinished(
            self.chain.keys[-2:] if said is None else (self.keeping.answer_key(said),)
        )

    def put_back_less(self, prompt: Prompt) -> Prompt | None:
        """Take out the older half of the messages put back; None where none are left that no summary holds."""
        count = len(self._turns)
        if not count or prompt.has_taken_in_own or len(prompt.of_client) != len(prompt.base):
            return None
        less = self._turns[(count + 1) // 2 :]
        return self._begun(prompt, self._expanded(less, self._found))

    async def _fitting(self, budget: Budget, size: Measured, *, waits: bool) -> tuple[int, Entry] | None:
        half, found = budget.window // 2, list[tuple[int, Entry]]()
        keys = self.entries.rows.keys_now()
        is_first = len(self.chain.keys) == 1  # it can have been compacted only if it was asked before
        if keys is None and (is_first or not waits) and await _fit(budget, size, self.of_client, half):
            keys = ()
        async for place, entry in self.entries.of(self.chain, keys):
            shows_too_much = entry.rung == SHORTENED and entry.window > budget.window  # it is shortened anew
            if shows_too_much or not self._asks(place, entry):
                continue
            found.append((place, entry))
            if _are_alike(entry.window, budget.window):
                break
        if not found or _are_alike(found[0][1].window, budget.window):
            return found[0] if found else None
        if self.sent_with == "" and await self._fits(budget, size, None, budget.trigger - 1):
            return None
        standing = self._standing(budget, found)
        if standing is not None and await self._fits(budget, size, standing, budget.trigger - 1):
            return standing
        if all(entry.window < budget.window for _, entry in found) and await self._fits(budget, size, None, half):
            return None
        return found[0]

    def _standing(self, budget: Budget, found: Sequence[tuple[int, Entry]]) -> tuple[int, Entry] | None:
        """Return the entry for such a window, or else the one with which the model was asked last."""
        if _are_alike(found[-1][1].window, budget.window):
            return found[-1]
        return next((each for each in found if each[1].key == self.sent_with), None)

    async def restored(self) -> Prompt:
        """Return the conversation as the model gets it: with its newest entry, and what the client never saw."""
        return await self.restored_with([each async for each in self.entries.of(self.chain)])

    async def restored_with(self, found: Sequence[tuple[int, Entry]]) -> Prompt:
        """Return the conversation with the first of these entries, and what the client never saw."""
        newest = found[0] if found else None
        return Prompt(self._with_entry(newest, (await self._put_back(newest)).items))

    def _with_entry(self, found: tuple[int, Entry] | None, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return the conversation with an entry in place of the messages it covers, unchanged without an entry."""
        return items if found is None else recalled(items, self.chain.keys[found[0]], found[1].messages)

    async def _fits(self, budget: Budget, size: Measured, found: tuple[int, Entry] | None, most: int) -> bool:
        """Tell whether the conversation with an entry fills at most so many tokens, with the messages put back."""
        if not await _fit(budget, size, _messages(self._with_entry(found, self.items)), most):
            return False
        whole = await self._put_back(found)
        items = self._with_entry(found, whole.items)
        return not whole.turns or await _fit(budget, size, _messages(items), most)

    async def _put_back(self, found: tuple[int, Entry] | None) -> Expanded:
        """Return the conversation with the kept turns after an entry put back; a chat never fails for that."""
        turns: Sequence[KeptTurn] = ()
        if self._kept is not None and len(self.chain.keys) > 1:
            try:
                turns = await self._kept.hidden(self.chain, _place_of(found))
            except Exception:
                log.exception("What an agent has read in a conversation cannot be put back.")
        return self._expanded(turns, found)

    def _expanded(self, turns: Sequence[KeptTurn], found: tuple[int, Entry] | None) -> Expanded:
        if not turns:
            return Expanded(self.items)
        return expanded(self.items, self.chain, _place_of(found), turns, is_continued=self.is_continued)

    def _begun(self, prompt: Prompt, whole: Expanded) -> Prompt:
        """Return the prompt that begins with the compaction that was found, followed by these messages."""
        before, self._turns, self.lost, self._has_begun = self._turns, whole.turns, whole.lost, True
        if self._found is None and not whole.turns and not before:
            return prompt
        return prompt.beginning_with(self._with_entry(self._found, whole.items)).noted(self._came_back)

    def begun_with(self) -> Written | None:
        """Return how the earlier compaction was made with which the turn has begun; None where none summarised it."""
        entry = self.keeping.replaces
        if entry is None or entry.rung in (PRUNED, SHORTENED):
            return None
        return entry.written

    def _asks(self, place: int, entry: Entry) -> bool:
        """Tell whether with an entry the conversation ends as the client's does, and has its last question.

        A question whose files were shortened stands there all the same. It does not end so where the client goes back
        to the end of a compaction: its question is part of the summary there.
        """
        spoken = [item for item in self.items if item.key]
        last = next(reversed(entry.messages), None) if place == len(spoken) - 1 else spoken[-1].message
        asked = max((at for at, item in enumerate(spoken) if item.message.get("role") == "user"), default=len(spoken))
        stands = asked > place or any(stands_for(message, spoken[asked].message) for message in entry.messages)
        return last is not None and last.get("role") == spoken[-1].message.get("role") and stands


def _place_of(found: tuple[int, Entry] | None) -> int:
    return found[0] if found is not None else -1


def _messages(items: Sequence[Item]) -> list[Message]:
    return [item.message for item in items]


def _are_alike(one: int, other: int) -> bool:
    """Tell whether two windows are about as large."""
    much, larger = MUCH_LARGER
    return max(one, other) * larger < min(one, other) * much


async def _fit(budget: Budget, size: Measured, messages: Sequence[Message], most: int) -> bool:
    """Tell whether messages and their reply fill at most so many tokens; False where they cannot be counted."""
    try:
        return budget.occupied(await size(messages)) <= most
    except Exception as error:  # noqa: BLE001  # a chat must not fail for its count
        log.warning("Whether a conversation fits its window once more cannot be counted: %s", error)
        return False
