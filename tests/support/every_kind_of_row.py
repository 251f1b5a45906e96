"""A store with every kind of row: `tables_of_version_4.sql` is a file that version 4 filled with these."""

from pathlib import Path

from elbowroom.context.conversation import (
    Added,
    Change,
    CompactionDetails,
    CompactionNoted,
    ContextFill,
    ConversationBegun,
    Heard,
    Queued,
    QueuedMessage,
    QueueTaken,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    StepUsage,
    StepUsed,
    TurnBegun,
    TurnEnded,
)
from elbowroom.context.ledger import Chain, Entry
from elbowroom.context.outputs import ref_to, ref_to_media
from elbowroom.context.transcript import Message

ME = "anna"
VERSION_4 = (Path(__file__).parent / "tables_of_version_4.sql").read_text(encoding="utf-8")
YOU = "ben"
AGENT = "writer"
LIST = "".join(f"line {number} of the list, é 日本\n" for number in range(3))
LOG = "".join(f"{number:06} a line of a log that takes two blocks\n" for number in range(1600))
IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
NOTED = "A note that only the messages before the summary name."
CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a b.md"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
HISTORY: list[Message] = [
    {"role": "system", "content": "You write."},
    {"role": "user", "content": "What is in the note?"},
    {"role": "assistant", "content": f"[trimmed; ref={ref_to(ME, NOTED).id}]"},
    {"role": "user", "content": [{"type": "text", "text": "And in the picture?"}, PICTURE]},
]
SUMMARY: list[Message] = [{"role": "user", "content": f"They spoke of a list; ref={ref_to(ME, LIST).id}"}]
CHAIN = Chain.of(ME, AGENT, HISTORY)
ENTRY = Entry(CHAIN.keys[-1], tuple(SUMMARY), 8192, 7000, 900, "plan", 1_700_000_000.5)
TEXTS = (LIST, LOG, NOTED)
IMAGE_ID = ref_to_media(ME, "image/png", IMAGE).id


def _conversation(name: str, owner: str, keys: tuple[str, ...]) -> list[Change]:
    return [
        ConversationBegun(name, owner, f"chat of {owner} \ud800", AGENT, 100.0),
        *(
            Heard(name, key, parent, message, 101.0)
            for key, parent, message in zip(keys, ("seed", *keys), HISTORY[1:], strict=False)
        ),
        TurnBegun(f"{name}-1", name, keys[-1], AGENT, 102.0),
        ReplyBegun(f"{name}-1", f"{name}-1.1", 102.0),
        ReplyGrew(f"{name}-1.1", "reasoning", "I have to look.\0"),
        ReplyGrew(f"{name}-1.1", "text", 'Let me "look".\n'),
        ReplyCalled(f"{name}-1.1", CALL),
        ReplyEnded(f"{name}-1.1", "complete"),
        StepUsed(f"{name}-1", "small model", StepUsage(100, 10, 1, 5), ContextFill(500, 8192, 7000, 7500), 103.0),
        Added(f"{name}-1", f"{name}-1.2", {"role": "tool", "tool_call_id": "call_1", "content": "Straße"}, 104.0),
        ReplyBegun(f"{name}-1", f"{name}-1.3", 105.0),
        ReplyGrew(f"{name}-1.3", "text", "It says 日本語 " * 700),
        ReplyEnded(f"{name}-1.3", "complete"),
        StepUsed(f"{name}-1", "small model", StepUsage(20, 5, 0, 120, is_counted=True), None, 106.0),
        CompactionNoted(name, 7000, 900, "plan", 106.5, CompactionDetails(1.5, 2, 3, 40, "They \ud800 spoke.")),
        CompactionNoted(name, 900, 300, "digest", 106.6),
        TurnEnded(f"{name}-1", "complete", f"{name}.answer", 107.0),
    ]


CHANGES: list[Change] = [
    *_conversation("c", ME, CHAIN.keys),
    *_conversation("d", YOU, ("d.1", "d.2")),
    Queued(QueuedMessage("q1", "c", {"role": "user", "content": "Also this"}, "steer", 108.0)),
    Queued(QueuedMessage("q2", "c", {"role": "user", "content": "And then?"}, "follow_up", 109.0)),
    TurnBegun("c-2", "c", "c.answer", AGENT, 110.0),
    QueueTaken("c-2", ("q1",)),
    ReplyBegun("c-2", "c-2.1", 111.0),
    ReplyGrew("c-2.1", "text", "This is being sa"),
]
"""Two conversations of two people, and a turn of the first that a crash has cut off."""
