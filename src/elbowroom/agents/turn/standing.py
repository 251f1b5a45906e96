"""The newest summary of a conversation, which a person may take back or put in other words."""

from dataclasses import dataclass, replace

from elbowroom.agents.turn.entries import key_set_aside
from elbowroom.agents.turn.keeping import summary_in
from elbowroom.agents.turn.recall import Recall
from elbowroom.context.ledger import UNDONE, Entry
from elbowroom.context.transcript import Message


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest summary of a conversation: its message, the entries that hold it, and the prompt without any of them.

    `messages` is the prompt with the newest of the entries, `replaced` what stood in the place of each before it.
    """

    summary: Message
    entries: tuple[Entry, ...]
    replaced: tuple[Entry | None, ...]
    messages: list[Message]
    without: list[Message]


async def standing_summary(recall: Recall) -> Standing | None:
    """Return the newest summary that stands for a beginning of the conversation; None where there is none."""
    entries = recall.entries
    found = [each async for each in entries.of(recall.chain)]
    summary = next((summary for _, entry in found if (summary := summary_in(entry.messages)) is not None), None)
    if summary is None:
        return None
    stored = await entries.rows.keys()
    before = [
        (place, await entries.with_key(key_set_aside(entry), stored) if summary in entry.messages else entry)
        for place, entry in found
    ]
    held = [at for at, (_, entry) in enumerate(found) if summary in entry.messages]
    return Standing(
        summary,
        tuple(found[at][1] for at in held),
        tuple(before[at][1] for at in held),
        (await recall.restored_with(found)).messages,
        (await recall.restored_with([(place, entry) for place, entry in before if entry is not None])).messages,
    )


async def take_back(recall: Recall, standing: Standing) -> None:
    """Take a summary out of all prompts, so that the next request has what stood there before."""
    for entry, replaced in zip(standing.entries, standing.replaced, strict=True):
        if replaced is not None:
            recall.entries.keep_copy(entry.key, replaced, recall.of_client)
        else:
            recall.entries.keep(entry.key, (), replace(entry.written, rung=UNDONE), ())
    await recall.entries.notes.saved()


async def put_in_words(recall: Recall, standing: Standing, summary: Message) -> None:
    """Put another summary in the place of one in all prompts; the compaction is known by its sizes as before."""
    for entry in standing.entries:
        messages = [summary if message == standing.summary else message for message in entry.messages]
        recall.entries.keep(entry.key, messages, entry.written, recall.of_client)
    await recall.entries.notes.saved()
