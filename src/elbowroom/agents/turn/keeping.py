"""Keeps the compactions of one turn for the turns after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from elbowroom.agents.answer import Compacted
from elbowroom.agents.turn.entries import Entries, key_set_aside
from elbowroom.context.compaction import inner_summary, is_summary, sealed_key
from elbowroom.context.conversation import StepUsage
from elbowroom.context.ledger import Chain, Entry, Written, is_system
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, Transcript, text_of


@dataclass(slots=True)
class Keeping:
    """Keeps compactions of one conversation among `entries`, known by the `chain` over its client's messages.

    `replaces` is the compaction with which the turn has begun. A history with what the client never saw is kept only
    for a caller that `may_have_hidden`.
    """

    entries: Entries
    chain: Chain
    of_client: Sequence[Message]
    may_have_hidden: bool
    replaces: Entry | None = None
    beyond: Written | None = None

    def keep(self, prompt: Prompt, written: Written, said: Message | None = None) -> None:
        """Keep the messages that stand for the client's now, for turns that begin the same.

        A compaction that has taken in more than the client's messages is `beyond` them, and is kept with the answer
        once it is known what the client has got: what it has as `said`. Nothing is kept where the messages are those
        that the turn began with.
        """
        if prompt.has_steps and not self.may_have_hidden:
            return
        if not prompt.has_taken_in_own:
            self._keep_beginning(prompt, written)
        elif said is None:
            self.beyond = written
        else:
            spoken = [message for message in prompt.messages if not is_system(message)]
            self.entries.keep(self.answer_key(said), spoken, written, [*self.of_client, said])

    def _keep_beginning(self, prompt: Prompt, written: Written) -> None:
        key, messages = prompt.entry() if prompt.of_client != prompt.base else ("", [])
        if key:
            replaced = self.replaces
            self.entries.keep(key, messages, written, self.of_client)
            if replaced is not None and replaced.key == key and summary_in(replaced.messages) != summary_in(messages):
                self.entries.keep_copy(key_set_aside(self.entries.notes.unsaved[key]), replaced, self.of_client)

    def handed_out(self, prompt: Prompt, written: Written, used: StepUsage) -> Compacted:
        """Keep a prompt that stands for all that the client has sent; return what the client gets of it."""
        messages = tuple(message for message in prompt.messages if not is_system(message))
        key = sealed_key(self.chain.keys[-1] if self.chain.keys else self.chain.seed, messages)
        self.entries.keep(key, messages, written, self.of_client)
        summary = summary_in(messages)
        told = inner_summary(text_of(summary)) if summary is not None else ""
        return Compacted(key, messages, told, written.before, written.after, used)

    def answer_key(self, said: Message) -> str:
        """Return the key of this conversation with its answer, as the next request will bring it."""
        is_continued = bool(self.of_client) and self.of_client[-1].get("role") == "assistant"
        return self.chain.continued_by(self.of_client, said) if is_continued else self.chain.followed_by(said)


def summary_in(messages: Sequence[Message]) -> Message | None:
    """Return the message in which an earlier compaction tells what it has removed; None without one."""
    groups = Transcript.of(messages).groups
    return next((group.messages[0] for group in groups if is_summary(group)), None)
