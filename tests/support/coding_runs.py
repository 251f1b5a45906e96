"""One run of a coding agent, with elbowroom between it and the simulated LM Studio or without, and what it cost."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from chatting import MODEL
from coding_agents import Agent, Outcome, Place, run
from coding_task import SUMMARY, CodingModel, Task, write_long_task, write_task
from recording_relay import RecordingRelay
from scripted_pruner import is_prune_order, text_of
from serving import Served, serve, settings_for

from elbowroom.agents.admission import Admission
from elbowroom.context.compaction.division import SUMMARY_TAG
from elbowroom.context.costs import Engine
from elbowroom.context.outputs import MARK
from elbowroom.demo import SimulatedLMStudio, SimulatedModel, SimulatedTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from recording_relay import Request

    from elbowroom.demo.journal import RecordedRequest

COMPACTIONS: Final = re.compile(r"^elbowroom_compactions_total\{.*\} (\S+)$", re.MULTILINE)
TOKENIZER: Final = SimulatedTokenizer()
TURN: Final = "<|im_end|>\n"
Body = dict[str, Any]
SECONDS: Final = 200.0
READING_SPEED, WRITING_SPEED = 300, 20  # tokens a second
ROUTES: Final = ("/chat/completions", "/responses", "/messages")


@dataclass(frozen=True, slots=True)
class Spent:
    """What compactions cost an engine, in tokens: what it read `again`, the `summaries`, and what was `written`."""

    again: int
    summaries: int
    written: int

    def seconds(self, reading: int) -> float:
        """Return how long all waited for that where the engine reads so many tokens a second."""
        return (self.again + self.summaries) / reading + self.written / WRITING_SPEED


@dataclass(frozen=True, slots=True)
class Named:
    """What prompts name right after compactions: how many of the `things` to do, and of the `edited` files.

    Each thing and each file counts once for each of them.
    """

    things: int = 0
    things_named: int = 0
    edited: int = 0
    edited_named: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended: the task's folder, how the client ended, what it asked and what the engine was asked."""

    task: Task
    outcome: Outcome
    model: CodingModel
    asked: list[Request]
    chats: list[RecordedRequest]
    compactions: int

    @property
    def rounds(self) -> int:
        """Return how many answers the client asked for."""
        return sum(request.path.partition("?")[0].endswith(ROUTES) for request in self.asked)

    @property
    def over_the_window(self) -> int:
        """Return how many prompts were as large as the window or larger."""
        return sum(not chat.fitted for chat in self.chats if chat.counted_tokens is not None)

    @property
    def spent(self) -> Spent:
        """Return what compactions, the client's own among them, have cost the engine."""
        seen: set[str] = set()
        before = ""
        again, summaries, written = 0, 0, 0
        for chat in self.chats:
            if chat.counted_tokens is None:
                continue
            prompt = TOKENIZER.render(chat.body["messages"], chat.body.get("tools"))
            is_order = is_prune_order(chat.body) or is_own_compaction(chat.body)
            more = tokens_spent(prompt, shared_by(before, prompt), seen, is_order=is_order)
            before, again, summaries = prompt, again + more[0], summaries + more[1]
            written += chat.completion_tokens if is_order else 0
        return Spent(again, summaries, written)

    @property
    def shortened(self) -> int:
        """Return how many texts stood for others in prompts: summaries, and what is left of old results."""
        return len({text for chat in self.chats for text in map(text_of, chat.body["messages"]) if is_shorter(text)})

    @property
    def kept(self) -> int:
        """Return how many tokens of history stood word for word in the first prompts after compactions, on average."""
        sizes, before = [], ""
        for chat in self.chats:
            if chat.counted_tokens is None or is_prune_order(chat.body) or not chat.body.get("tools"):
                continue
            said = [text_of(message) for message in chat.body["messages"] if message["role"] != "system"]
            beginning = "".join(text for text in said if is_shorter(text))
            if beginning != before:
                sizes.append(sum(len(TOKENIZER.split(text)) for text in said if not is_shorter(text)))
            before = beginning
        return round(mean(sizes)) if sizes else 0

    @property
    def named(self) -> Named:
        """Return what the first prompts after compactions name of the newest list and of the files edited by then."""
        things: list[str] = []
        edited: set[str] = set()
        found = Named()
        before = ""
        for chat in self.chats:
            if chat.counted_tokens is None or is_prune_order(chat.body) or not chat.body.get("tools"):
                continue
            messages = chat.body["messages"]
            for arguments in arguments_in(messages):
                things = things_in(arguments) or things
                edited |= {part.path for part in self.task.parts if part.after in arguments}
            told = "".join(text for text in map(text_of, messages) if text.startswith(f"<{SUMMARY_TAG}>"))
            if told and told != before:
                prompt = json.dumps(messages, ensure_ascii=False)
                found = Named(
                    found.things + len(things),
                    found.things_named + sum(thing in prompt for thing in things),
                    found.edited + len(edited),
                    found.edited_named + sum(is_named(path, prompt) for path in edited),
                )
            before = told
        return found

    @property
    def own_compactions(self) -> int:
        """Return how many summaries of the conversation the client asked for by itself."""
        return sum(is_own_compaction(request.json()) for request in self.asked if request.body)


def arguments_in(messages: list[Body]) -> list[str]:
    """Return the arguments of all calls."""
    return [call["function"]["arguments"] for each in messages for call in each.get("tool_calls") or ()]


def things_in(arguments: str) -> list[str]:
    """Return the things of a call that lists what is to do, nothing for other calls."""
    lists = [value for value in json.loads(arguments).values() if isinstance(value, list)]
    return [each.get("content") or each.get("step") for each in lists[0] if "status" in each] if lists else []


def is_named(path: str, prompt: str) -> bool:
    """Tell whether a prompt names a file, whole or below its folder that stands once for several."""
    folder, _, name = path.rpartition("/")
    return path in prompt or (f"`{name}`" in prompt and f"{folder}/`" in prompt)


def shared_by(one: str, other: str) -> int:
    """Return with how many characters both texts begin alike."""
    most = min(len(one), len(other))
    return bisect_left(range(most), True, key=lambda length: one[: length + 1] != other[: length + 1])


def tokens_spent(prompt: str, reused: int, seen: set[str], *, is_order: bool) -> tuple[int, int]:
    """Return the tokens that the engine read although their messages are in `seen`, and those of new summaries.

    It has the first `reused` characters of the prompt in its cache. Of an order all that it read counts. What stands
    for old results counts as a summary. The other messages are added to `seen`.
    """
    place, again, summaries = 0, 0, 0
    for message in prompt.split(TURN)[:-1]:
        place += len(message + TURN)
        read = len(TOKENIZER.split((message + TURN)[-max(0, place - reused) :])) if place > reused else 0
        if message in seen or is_order:
            again += read
        elif is_shorter(message.partition("\n")[2]):
            summaries += read
        seen.add(message)
    return again, summaries


def is_shorter(text: str) -> bool:
    """Tell whether a message's text stands for others: a summary of elbowroom or of a client, or an old result's."""
    return text.startswith((f"<{SUMMARY_TAG}>", MARK)) or SUMMARY in text


def is_own_compaction(body: Body) -> bool:
    """Tell whether a client's request asks for a summary of the conversation."""
    messages = body.get("messages") or body.get("input") or [{}]
    return not body.get("tools") and "summar" in json.dumps(messages[-1])


async def coding_run(
    agent: Agent,
    installed: Path,
    folder: Path,
    window: int,
    *,
    directly: bool = False,
    is_long: bool = False,
    keeps_list: bool = False,
) -> Run:
    """Have an agent do the task of forty calls, or the long one, in a window of so many tokens.

    With `keeps_list` the model writes down what is to do before each part, where the agent has a tool for that.
    The simulator answers at once, but elbowroom takes it for an engine of the speeds for which waiting is computed.
    """
    repository = folder / "repository"
    task = write_long_task(repository) if is_long else write_task(repository, window)
    task = replace(task, keeps_list=keeps_list)
    model = CodingModel(task)
    loaded = SimulatedModel(MODEL, loaded_context_length=window)
    async with AsyncExitStack() as stack:
        stack.enter_context(patch.object(Admission, "engine", return_value=Engine(READING_SPEED, WRITING_SPEED)))
        studio = await stack.enter_async_context(SimulatedLMStudio([loaded], on_request=model))
        settings = settings_for(studio.base_url)
        served = None if directly else await stack.enter_async_context(serve(folder, settings))
        relay = await stack.enter_async_context(RecordingRelay(served.url if served else studio.base_url))
        place = Place(folder / "home", task.folder, relay.base_url, window, is_managed=not directly)
        outcome = await run(agent, installed, place, task.prompt, SECONDS)
        compactions = await compactions_of(served) if served else 0
        return Run(task, outcome, model, relay.requests, studio.chats, compactions)


async def compactions_of(served: Served) -> int:
    """Return how often elbowroom has compacted a conversation."""
    async with served.http.get(f"{served.url}/metrics") as response:
        return int(sum(float(number) for number in COMPACTIONS.findall(await response.text())))
