"""The history of a turn as the model gets it, with an answer that was stopped and is continued."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from elbowroom.agents.prompt import is_short
from elbowroom.context.seam import StopFinder
from elbowroom.context.templates import orphans_in
from elbowroom.context.transcript import Message

log = logging.getLogger(__name__)
ORPHANS: Final = (
    "{count} of the results of tools that the client sent answer no call, or one that has its result already; the "
    "model reads them as messages of the user."
)
LEAST_PIECE = 200
LONGEST_WORD = 60
CONTINUE = (
    "Your last message was interrupted for technical reasons. Continue it exactly where it stopped: your first "
    "character has to be the one that comes next. Do not repeat anything, do not begin anew, and say nothing about "
    "the interruption."
)
GO_ON_AT_THE_END = (
    "Stop: you have begun your message anew. All of it up to the following words is written already and must not be "
    "written again:\n\n<end>\n{end}\n</end>\n\nWrite nothing but what comes after these words, beginning with the very "
    "next character."
)
LONGEST_END = 200
THINK_ON = (
    "Your thinking about this was interrupted for technical reasons. It ended like this:\n\n<thoughts>\n{thoughts}\n"
    "</thoughts>\n\nTake up the thought where it ended, finish it shortly, and answer."
)


class History:
    """The conversation before the model's next words; a compaction of it lasts for all later steps of the turn.

    The text of a stopped answer stands at the end in pieces, so that a compaction can take in its beginning and leave
    its end word for word. The model gets the pieces as one message.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.changes = 0
        """How often other messages have taken the place of what was here, as in a compaction."""
        self.begin_with(messages)

    def begin_with(self, messages: Sequence[Message], untouched: int | None = None) -> None:
        """Begin with these messages in place of the client's, and nothing added to them.

        `untouched` is the number of messages at their end that no compaction has taken in, by default all.
        """
        self._base = list(messages)
        self._base_untouched = self.untouched = len(messages) if untouched is None else untouched
        self._appended: list[dict[str, Any]] = []
        self._messages: list[Message] = list(messages)
        self._own = 0
        self._pieces: list[Message] = []
        self._taken_in = 0
        self._order: list[Message] = []
        self.has_taken_in_own = False
        self.has_steps = False

    def begin_anew_with(self, messages: Sequence[Message], untouched: int) -> None:
        """Begin with these messages in place of the client's, followed by those that the run has added."""
        appended = self._appended
        self.begin_with(messages, untouched)
        self.extend_to(appended)
        self.changes += 1

    @property
    def messages(self) -> list[Message]:
        """Return the conversation, with the pieces of a stopped answer at its end."""
        return [*self._messages, *self._pieces]

    @property
    def of_client(self) -> list[Message]:
        """Return the messages that stand for the client's, without those that the run has added."""
        return self._messages[: len(self._messages) - self._own]

    @property
    def appended(self) -> list[Message]:
        """Return the messages that the run has added to the client's, as they came."""
        return [*self._appended]

    @property
    def is_stopped(self) -> bool:
        """Tell whether an answer was stopped and has to go on."""
        return bool(self._order)

    def extend_to(self, appended: Sequence[dict[str, Any]]) -> None:
        """Take in the messages that the run has added to the client's since the last step.

        `has_steps` tells from then on that the run has added any.
        """
        known = len(self._appended)
        has_steps = self.has_steps or bool(appended)
        if list(appended[:known]) == self._appended:
            new = [_without_beginning(message, self._taken_in) for message in appended[known : known + 1]]
            new += appended[known + 1 :]
        else:
            self.begin_with(self._base, self._base_untouched)
            new = list(appended)
        self._messages += new
        self._own += len(new)
        self._appended = list(appended)
        self._pieces, self._taken_in, self._order = [], 0, []
        self.has_steps = has_steps

    def stop_at(self, said: str, piece_length: int) -> None:
        """Put a stopped answer at the end, to be continued, in pieces of about that many characters."""
        self._order = [{"role": "user", "content": CONTINUE}]
        self._pieces = [
            {"role": "assistant", "content": piece} for piece in pieces_of(said[self._taken_in :], piece_length)
        ]

    def insist(self) -> None:
        """Order more firmly to go on with the stopped answer, since the model has begun it anew."""
        end = "".join(str(piece["content"]) for piece in self._pieces)[-LONGEST_END:]
        self._order = [{"role": "user", "content": GO_ON_AT_THE_END.format(end=end)}]

    def stop_thinking(self, thoughts: str) -> None:
        """Let the model think on where it was stopped before its first word; `thoughts` are its last ones."""
        self._order = [{"role": "user", "content": THINK_ON.format(thoughts=thoughts)}] if thoughts.strip() else []

    def replace(self, messages: Sequence[Message], tail: int) -> None:
        """Take over a compaction, whose last `tail` messages are the last ones that were here before.

        `has_taken_in_own` tells from then on whether a summary holds messages that the client has not sent, such as
        results of the server's tools or the beginning of an answer. `untouched` is the number of the client's last
        messages that no compaction has taken in.
        """
        left = min(tail, len(self._pieces))
        taken = self._pieces[: len(self._pieces) - left]
        own = min(tail - left, self._own)
        self.has_taken_in_own = self.has_taken_in_own or bool(taken) or own < self._own
        self._taken_in += sum(len(piece["content"]) for piece in taken)
        self._pieces = self._pieces[len(taken) :]
        self._own = own
        self.untouched = min(self.untouched, tail - left - own)
        self._messages = list(messages[: len(messages) - left])
        self.changes += 1

    def shorten(self, messages: Sequence[Message]) -> None:
        """Take over the same messages, some of them shortened; the pieces of a stopped answer are not changed."""
        self._messages = list(messages[: len(messages) - len(self._pieces)])
        self.changes += 1

    def followed_by(self, reply: Message) -> "History":
        """Return the whole conversation with this reply at its end, which no client has sent yet.

        A summary may hold the reply's beginning. A reply that continues a message of the client is joined to it. The
        reply is not added where it is empty, or is here already with the results of its calls, since the next step has
        said nothing.
        """
        if self._has_taken(reply) or not (reply.get("content") or reply.get("tool_calls")):
            return self._followed(self._messages, 0, is_continued=False)
        said = _without_beginning(dict(reply), self._taken_in)
        last = self._messages[-1] if self._messages else None
        goes_on = last is not None and self._is_clients_last(last) and not self._taken_in and _is_plain_answer(last)
        if goes_on and last is not None:
            said = {**said, "content": f"{last['content']}{said.get('content') or ''}"}
        return self._followed([*self._messages[: -1 if goes_on else None], said], 1, is_continued=goes_on)

    def _followed(self, messages: Sequence[Message], more: int, *, is_continued: bool) -> "History":
        other = History(messages)
        other._own = self._own + more
        other.untouched = self.untouched
        other.has_taken_in_own = self.has_taken_in_own or is_continued
        other.has_steps = self.has_steps
        return other

    def _has_taken(self, reply: Message) -> bool:
        """Tell whether the run has gone on after this reply."""
        calls = {call["id"] for call in reply.get("tool_calls") or ()}
        known = {call.get("id") for message in self._appended for call in message.get("tool_calls") or ()}
        return not calls.isdisjoint(known)

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages as the model gets them: pieces joined, followed by the order to go on."""
        return [*self.joined(messages), *self._order]

    def joined(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with neighbouring pieces joined in one message.

        They are also joined to a message of the client that was to be continued.
        """
        if not self._pieces:
            return list(messages)
        whole: list[Message] = []
        before = None
        for message in messages:
            if whole and self._continues(before, message):
                whole[-1] = {**whole[-1], "content": whole[-1]["content"] + message["content"]}
            else:
                whole.append(message)
            before = message
        return whole

    def _continues(self, before: Message | None, message: Message) -> bool:
        """Tell whether a message is a piece that continues the message before it.

        Messages are compared by identity: the client may have said the very same.
        """
        place = next((at for at, piece in enumerate(self._pieces) if piece is message), None)
        if place is None or before is None:
            return False
        if place > 0:
            return before is self._pieces[place - 1]
        return self._is_clients_last(before) and not self._taken_in and _is_plain_answer(before)

    def _is_clients_last(self, message: Message) -> bool:
        return not self._appended and bool(self._base) and message is self._base[-1]


def pieces_of(text: str, length: int) -> list[str]:
    """Cut a text at ends of lines or sentences into pieces of about this many characters.

    Where none of these comes for more than twice that long, a piece ends with a word. No piece is shorter than
    `LEAST_PIECE`, above all not the last, from which a model sees where it stopped.
    """
    length = max(LEAST_PIECE, length)
    pieces: list[str] = []
    start = 0
    for place in [*StopFinder().places(text), len(text)]:
        while place - start > 2 * length + LONGEST_WORD:
            pieces.append(text[start : (cut := _end_of_word(text, start + length))])
            start = cut
        if place - start >= length and len(text) - place >= LEAST_PIECE:
            pieces.append(text[start:place])
            start = place
    return [*pieces, text[start:]] if start < len(text) else pieces


def _end_of_word(text: str, place: int) -> int:
    """Return the place after the next blank, or the same place where none is near."""
    blank = text.find(" ", place, place + LONGEST_WORD)
    return blank + 1 if blank >= 0 else place


def _without_beginning(message: dict[str, Any], length: int) -> dict[str, Any]:
    content = message.get("content")
    if not length or message.get("role") != "assistant" or not isinstance(content, str):
        return message
    return {**message, "content": content[length:]}


def _is_plain_answer(message: Message) -> bool:
    return (
        message.get("role") == "assistant" and isinstance(message.get("content"), str) and not message.get("tool_calls")
    )


async def warn_of_orphans(name: str, sent: Sequence[Message]) -> None:
    """Tell the log of results of tools in a client's history that answer no call."""
    if orphans := orphans_in(sent) if is_short(sent) else await asyncio.to_thread(orphans_in, sent):
        log.warning("%s: %s", name, ORPHANS.format(count=orphans))
