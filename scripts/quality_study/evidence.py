"""Is what answers a question in the prompt? Asked at the end of long chats, through a running elbowroom.

LoCoMo's questions name the turns that answer them. Without its file, questions were written for the conversations of
`conversations/`, each with the value that answers it, in other words than the conversation has where that is natural.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from controls import last_messages, without_the_middle
from informal import all_informal
from play import MODEL, said, stage
from pruners import Agent
from sizes import tokens
from tables import CUT, LAST, table

from elbowroom.context.transcript import Message, text_of
from elbowroom.context.unasked import FENCE
from elbowroom.quality.conversations import Known

QUESTIONS: Final = Path(__file__).with_name("questions.txt")
WINDOWS: Final = (4096, 8192)
PRUNER: Final = "garbage"
APART: Final = 8
"""Of so many messages the chat is sent once as it grows; what the window holds at the end hardly depends on it."""
CATEGORIES: Final = {1: "several turns", 2: "when", 3: "the world besides", 4: "one turn"}
"""LoCoMo's kinds of questions; the fifth is of those that the chat does not answer."""
WAYS: Final = ("unasked", "tool")
QUOTED: Final = re.compile(r"\n(?:user|assistant)?> ")
"""How a line of a passage begins."""
ORDINARY: Final = "ordinary messages with passages"


@dataclass(frozen=True, slots=True)
class Question:
    """A question; one of the texts `evidence` answers it."""

    kind: str
    text: str
    evidence: tuple[str, ...]


@dataclass(slots=True)
class Asked:
    """How many questions of a kind had what answers them in the prompt, by the way in which that was made."""

    of: int = 0
    told: dict[str, int] = field(default_factory=dict)
    note: int = 0


Chat = tuple[list[Message], list[Question]]
Figures = dict[tuple[int, str], Asked]


def own_chats() -> Iterator[Chat]:
    """Yield the written conversations for which there are questions, each long enough for many compactions."""
    rows = [[cell.strip() for cell in line.split("|")] for line in QUESTIONS.read_text("utf-8").splitlines()]
    for conversation in all_informal():
        asked = [Question(conversation.language, row[1], (row[2],)) for row in rows if row[0] == conversation.name]
        if asked:
            turns = conversation.turns(max(WINDOWS))
            spoken = [each for messages, _ in turns for each in messages if each["role"] != "tool" and text_of(each)]
            yield [{"role": each["role"], "content": text_of(each)} for each in spoken], asked


def locomo_chats(path: Path) -> Iterator[Chat]:
    """Yield LoCoMo's chats, whose first speaker is the user, with the questions that they answer."""
    for each in json.loads(path.read_text("utf-8")):
        talk = each["conversation"]
        texts = {turn["dia_id"]: turn["text"] for name in _sessions(talk) for turn in talk[name]}
        asked = [
            Question(CATEGORIES[row["category"]], str(row["question"]), evidence)
            for row in each["qa"]
            if row["category"] in CATEGORIES and (evidence := tuple(texts[at] for at in row["evidence"] if at in texts))
        ]
        yield _messages(talk), asked


def _sessions(talk: Mapping[str, Any]) -> list[str]:
    return sorted((key for key in talk if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))


def _messages(talk: Mapping[str, Any]) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "You are a friend who remembers what was said."}]
    for name in _sessions(talk):
        for turn in talk[name]:
            role = "user" if turn["speaker"] == talk["speaker_a"] else "assistant"
            if messages[-1]["role"] == role:
                messages[-1] = {"role": role, "content": f"{text_of(messages[-1])}\n{turn['text']}"}
            else:
                messages.append({"role": role, "content": turn["text"]})
    return messages


async def measured(chats: Sequence[Chat], window: int) -> Figures:
    """Play the chats in a window, ask at the end of each, and return what the prompts had."""
    figures: Figures = {}
    for way in WAYS:
        async with stage(window, MODEL, (), recall=way) as on:
            for history, questions in chats:
                on.agent = Agent(PRUNER, Known, tokens)
                whole = await _played(on, history, figures.setdefault((window, ORDINARY), Asked()), way)
                for question in questions:
                    asking = [*whole, {"role": "user", "content": question.text}]
                    size = await on.send(asking)
                    prompts = {way: on.studio.chats[-1].body["messages"]}
                    if way == WAYS[0]:
                        prompts[LAST] = last_messages(asking, size)
                        prompts[CUT] = without_the_middle(asking, size)
                    _count(figures, window, question, prompts)
    return figures


async def _played(on: Any, history: Sequence[Message], ordinary: Asked, way: str) -> list[Message]:
    """Send a chat as it grows; return it up to its last answer. Messages that ask nothing should bring nothing."""
    last = max(at for at, message in enumerate(history) if message["role"] == "assistant")
    for at, message in enumerate(history[: last + 1]):
        if message["role"] != "user" or at % APART > 1:
            continue
        follows = history[at + 1]
        on.says = said(follows) if follows["role"] == "assistant" else on.says
        await on.send(history[: at + 1])
        if way == WAYS[0] and "?" not in text_of(message):
            ordinary.of += 1
            ordinary.note += FENCE in str(on.studio.chats[-1].body["messages"][-1])
    return list(history[: last + 1])


def _count(figures: Figures, window: int, question: Question, prompts: Mapping[str, Sequence[Message]]) -> None:
    kind = figures.setdefault((window, question.kind), Asked())
    for way, prompt in prompts.items():
        if way == WAYS[0]:
            kind.of += 1
            kind.note += tokens(text_of(prompt[-1])) - tokens(question.text)
        text = QUOTED.sub("\n", " ".join(str(text_of(each)) for each in prompt))
        kind.told[way] = kind.told.get(way, 0) + any(_plain(each) in _plain(text) for each in question.evidence)


def _plain(text: str) -> str:
    return " ".join(text.split())


def evidence_table(chats: Sequence[Chat]) -> Iterator[str]:
    """Yield the table: for how many questions what answers them is in the prompt, by window and kind."""
    figures: Figures = {}
    with ProcessPoolExecutor(len(WINDOWS), mp_context=get_context("spawn")) as pool:
        for found in pool.map(in_window, [chats] * len(WINDOWS), WINDOWS):
            figures |= found
    heads = ("window", "questions", "of", *WAYS, LAST, CUT, "tokens of passages")
    rows = [_row(window, kind, each) for (window, kind), each in figures.items() if kind != ORDINARY]
    sums = [_row(window, "*all*", _sum(figures, window)) for window in WINDOWS]
    yield from table(heads, iter(sorted([*rows, *sums])))
    yield "\n"
    for window in WINDOWS:
        each = figures[window, ORDINARY]
        share = 100 * each.note / max(1, each.of)
        told = f"{each.note} of {each.of:,} messages without a question mark brought passages ({share:.1f} %)"
        yield f"In a window of {window:,}, {told}.\n"


def in_window(chats: Sequence[Chat], window: int) -> Figures:
    """Return the figures of a window, in a process of its own."""
    return asyncio.run(measured(chats, window))


def _sum(figures: Figures, window: int) -> Asked:
    total = Asked()
    for (own, kind), each in figures.items():
        if own == window and kind != ORDINARY:
            total.of += each.of
            total.note += each.note
            for way, count in each.told.items():
                total.told[way] = total.told.get(way, 0) + count
    return total


def _row(window: int, kind: str, each: Asked) -> list[str]:
    shares = [f"{100 * each.told.get(way, 0) / max(1, each.of):.0f} %" for way in (*WAYS, LAST, CUT)]
    return [f"{window:,}", kind, f"{each.of:,}", *shares, f"{each.note // max(1, each.of)}"]
