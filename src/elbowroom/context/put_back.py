"""Puts back messages of earlier turns that the client never saw: results of the server's tools, queued messages.

A client has one message where a turn had several. That message stays as it is wherever it does not say what was kept:
it was edited, or is another answer to the same question. Where the process died in the middle of an answer, the client
may have lost it, or the end of it: then what was kept stands there. The messages that are put back are sound, and the
same each time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.context.canonical import without_thoughts
from elbowroom.context.conversation import KeptTurn
from elbowroom.context.ledger import Chain
from elbowroom.context.prompt import Item
from elbowroom.context.templates import TakenIds, answers_in, with_free_id
from elbowroom.context.transcript import Message, calls_of, text_of, with_safe_calls, without_calls

BETWEEN_REPLIES: Final = "\n\n"
"""Stands in an answer between the texts of two steps of its turn."""

NO_ANSWER: Final[Message] = {"role": "assistant", "content": ""}
Calls = list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Expanded:
    """A history with `turns` that were put back, the oldest first. What stands for an answer now has its key.

    `lost` says which of them the client has lost, or a part of it, where that was the answer before its last message.
    """

    items: tuple[Item, ...]
    turns: tuple[KeptTurn, ...] = ()
    lost: KeptTurn | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """One message of a turn: a reply of the model with those of its calls that have results, or a queued message.

    Calls `of_client` are answered by the client itself.
    """

    message: Message
    calls: tuple[tuple[Mapping[str, Any], Message], ...] = ()
    of_client: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_reply(self) -> bool:
        return self.message.get("role") == "assistant"

    @property
    def text(self) -> str:
        return without_thoughts(text_of(self.message)).rstrip() if self.is_reply else ""

    def saying(self, content: object) -> "_Said":
        return replace(self, message={**self.message, "content": content})


def expanded(
    items: Sequence[Item], chain: Chain, place: int, turns: Sequence[KeptTurn], *, is_continued: bool = True
) -> Expanded:
    """Return a client's history with the kept turns in place of their answers, where these come after `place`.

    `place` is one in the chain, -1 for before all. Where it `is_continued`, an answer at the very end stays as it is.
    """
    kept = _Kept(turns)
    begin = chain.ends[place] if place >= 0 else 0
    whole = list(items[:begin])
    taken = TakenIds(call_id for item in whole for call_id in _ids_of(item.message))
    put_back: list[KeptTurn] = []
    lost, last = None, len(chain.keys) - 1
    for number in range(place + 1, len(chain.keys)):
        end, key = chain.ends[number], chain.keys[number]
        answer, parent = items[end - 1].message, chain.keys[number - 1] if number else chain.seed
        if _follows_a_question(items, chain, number) and (unseen := kept.lost_after(parent)) is not None:
            whole += _items("", _with_free_ids(unseen[1], NO_ANSWER, taken))
            put_back.append(unseen[0])
            lost = unseen[0] if number == last else lost
        whole += items[begin : end - 1]
        begin = end
        stays = is_continued and number == last
        turn, told = (None, []) if stays else kept.turn_of(answer, key, parent)
        if turn is None:
            whole.append(items[end - 1])
            taken.update(_ids_of(answer))
        else:
            whole += _items(key, _with_free_ids(told, answer, taken))
            put_back.append(turn)
            lost = turn if number == last - 1 and _says_more(told, answer) else lost
    return Expanded((*whole, *items[begin:]), tuple(put_back), lost)


def _items(key: str, messages: Iterable[Message]) -> list[Item]:
    return [Item(message, key, "put back") for message in messages]


def _follows_a_question(items: Sequence[Item], chain: Chain, number: int) -> bool:
    """Tell whether two messages of the person follow each other, as after an answer that the client has lost."""
    before = items[chain.ends[number - 1] - 1].message if number else NO_ANSWER
    return before.get("role") == items[chain.ends[number] - 1].message.get("role") == "user"


class _Kept:
    """Turns by the key of their answer; interrupted ones, whose answer has no key yet, by the message they answer."""

    def __init__(self, turns: Sequence[KeptTurn]) -> None:
        self._by_key = {turn.key: turn for turn in turns if turn.key}
        self._interrupted: dict[str, list[KeptTurn]] = {}
        for turn in turns:
            if not turn.key:
                self._interrupted.setdefault(turn.parent, []).append(turn)

    def lost_after(self, parent: str) -> tuple[KeptTurn, list[_Said]] | None:
        """Return the last answer to a message that the client does not have at all, and the messages of it."""
        found = ((turn, _told(turn, NO_ANSWER, is_whole=False)) for turn in reversed(self._interrupted.get(parent, ())))
        return next(((turn, told) for turn, told in found if told), None)

    def turn_of(self, answer: Message, key: str, parent: str) -> tuple[KeptTurn | None, list[_Said]]:
        """Return the turn that gave an answer, and the messages in place of the answer; None where no turn fits."""
        if answer.get("role") != "assistant" or answer.get("function_call"):
            return None, []
        if (turn := self._by_key.get(key)) is not None:
            told = _told(turn, answer, is_whole=True)
            return (turn, told) if told is not None else (None, [])
        found = [(turn, _told(turn, answer, is_whole=False)) for turn in self._interrupted.get(parent, ())]
        fitting = [(turn, told) for turn, told in found if told is not None]
        return max(fitting, key=lambda one: sum(len(said.text) for said in one[1]), default=(None, []))


def _told(turn: KeptTurn, answer: Message, *, is_whole: bool) -> list[_Said] | None:
    """Return the messages of a turn that replace its answer; None where the answer says something else.

    The answer of a turn that is not known to be whole may have more text than was kept, or less.
    """
    said = list(_sound(turn.messages))
    told = _as_answered(said, answer) if is_whole else _as_kept_or_answered(said, answer)
    if not told or not (_says_more(told, answer) or any(one.calls or not one.is_reply for one in told)):
        return None
    return _with_calls_of(answer, told)


def _says_more(told: Sequence[_Said], answer: Message) -> bool:
    """Tell whether there are words in these messages of a turn that are missing at the end of the client's answer."""
    words = "".join("".join(one.text for one in told).split())
    return len(words) > len("".join(without_thoughts(text_of(answer)).split()))


def _sound(messages: Sequence[Message]) -> Iterator[_Said]:
    """Yield the messages of a turn, each with those of its calls that have results; the results stand there too."""
    safe = [with_safe_calls(message) for message in messages]
    answers = answers_in(safe)
    for at, message in enumerate(safe):
        if message.get("role") == "tool":
            continue
        calls = enumerate(calls_of(message))
        answered = tuple((call, safe[answers[at, position]]) for position, call in calls if (at, position) in answers)
        yield _Said(without_calls(message), answered)


def _as_answered(said: Sequence[_Said], answer: Message) -> list[_Said] | None:
    """Return the messages of a whole turn; None where its replies together do not make the answer's text.

    The last reply has the client's text; the replies before have the text that the model has read.
    """
    rest = text_of(answer)
    speaking = [at for at, one in enumerate(said) if one.text]
    told = list(said)
    for at in speaking:
        before, rest = rest, without_thoughts(rest)
        if not rest.startswith(said[at].text):
            return None
        rest = rest[len(said[at].text) :]
        if at == len(said) - 1 and not said[at].calls:
            told[at] = said[at].saying(
                answer.get("content") if at == speaking[0] else before.removeprefix(BETWEEN_REPLIES)
            )
    return None if rest.strip() else told


def _as_kept_or_answered(said: Sequence[_Said], answer: Message) -> list[_Said] | None:
    """Return the kept messages of a turn, all of them where the client has less, and the client's further text.

    None where neither text begins with the other.
    """
    rest = text_of(answer)
    told: list[_Said] = []
    has_matched = not rest.strip() and not any(one.text for one in said)
    for at, one in enumerate(said):
        if one.text:
            words = without_thoughts(rest)
            if not words.startswith(one.text):
                return [*told, *said[at:]] if one.text.startswith(words.rstrip()) else None
            rest, has_matched = words[len(one.text) :], True
        told.append(one)
    if not (told and has_matched):
        return None
    if rest.strip() and told[-1].text and not told[-1].calls:
        told[-1] = told[-1].saying(text_of(told[-1].message).rstrip() + rest)
    elif rest.strip():
        told.append(_Said({"role": "assistant", "content": rest.removeprefix(BETWEEN_REPLIES)}))
    return told


def _with_calls_of(answer: Message, told: list[_Said]) -> list[_Said] | None:
    """Return these messages with the client's own calls at the last reply; all other calls have their results.

    Other keys of the client's message stay there. None where its results would not stand right after that reply.
    """
    own, last = calls_of(answer), told[-1]
    if own and not last.is_reply:
        return None
    if last.is_reply and not last.calls:
        last = replace(last, message={**without_calls(answer), "content": last.message.get("content")})
    return [*told[:-1], replace(last, of_client=tuple(own))]


def _with_free_ids(told: Sequence[_Said], answer: Message, taken: TakenIds) -> Iterator[Message]:
    """Yield the messages of a turn; the client's own calls keep their ids, and no other call has a taken one."""
    taken.update(_ids_of(answer))
    for one in told:
        calls: Calls = []
        results: list[Message] = []
        for call, result in one.calls:
            free = with_free_id(call, taken)
            calls.append(free)
            same = result.get("tool_call_id") == free["id"]
            results.append(result if same else {**result, "tool_call_id": free["id"]})
        calls += one.of_client
        if calls:
            yield {**one.message, "content": one.message.get("content") or None, "tool_calls": calls}
        elif not one.is_reply or one.text:
            yield one.message
        yield from results


def _ids_of(message: Message) -> Iterator[str]:
    return (call["id"] for call in calls_of(message) if isinstance(call.get("id"), str) and call["id"])
