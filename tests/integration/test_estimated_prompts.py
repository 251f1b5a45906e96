"""Prompts of a model whose tokens can only be estimated, near the edge of its window: none is refused that may fit."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from agent_teams import notices_of
from serving import Served, parse_frames, serve, settings_for, text_of

from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel

MODEL: Final = "granite-3.3-8b"
RAW: Final = f"lmstudio/{MODEL}"
WINDOW: Final = 2048
ANSWER: Final = "The last ferry leaves from the ninth pier."
Prompts = list[dict[str, Any]]


def told(words: int) -> Prompts:
    """Return a conversation of one message of so many words, which is about as many tokens."""
    return [{"role": "user", "content": "on " * words + "which pier?"}]


@asynccontextmanager
async def estimated(
    folder: Path, overflow: Overflow, share: float, compaction: str = "", answer: Script | str = ANSWER
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; the engine counts `share` of what the simulator's own tokenizer does, and always says `answer`."""
    listed = SimulatedModel(MODEL, architecture="granite", loaded_context_length=WINDOW)
    async with SimulatedLMStudio([listed], on_request=lambda body: answer, rpc=False, overflow=overflow) as studio:
        counted = studio.tokenizer.count_tokens
        studio.count_tokens = lambda messages, tools: round(share * counted(messages, tools))
        async with serve(folder, settings_for(studio.base_url, agents=f"[compaction]\n{compaction}")) as served:
            yield served, studio


async def bounds(served: Served, messages: Prompts) -> tuple[int, int]:
    """Return the fewest and the most tokens of a prompt by our count."""
    async with served.http.post(f"{served.chat_url}/input_tokens", json={"model": RAW, "messages": messages}) as reply:
        count = await reply.json()
        return count["input_tokens"] - count["error_bound"], count["input_tokens"] + count["error_bound"]


async def ask(served: Served, messages: Prompts) -> tuple[int, str, list[str]]:
    """Return the status, the answer or the code of the error, and the kinds of the notices."""
    body = {"model": RAW, "messages": messages, "stream": True}
    async with served.http.post(served.chat_url, json=body) as response:
        raw = await response.read()
        if response.status != 200:
            return response.status, json.loads(raw)["error"]["code"], []
    *chunks, last = parse_frames(raw)
    kinds = [kind for kind, _ in notices_of(chunks)]
    return (200, text_of(chunks), kinds) if last == "[DONE]" else (400, last["error"]["code"], kinds)


Engine = Literal["policy", "C", "E", "empty"]


@pytest.mark.parametrize(
    ("share", "engine", "wanted"),
    [
        (0.95, "C", (200, ANSWER)),  # it fits
        (1.25, "C", (400, "context_length_exceeded")),  # the engine names its window
        (1.25, "E", (400, "context_length_exceeded")),  # it names nothing
        (1.25, "empty", (400, "context_length_exceeded")),
    ],
)
@pytest.mark.parametrize("auto", [True, False])
async def test_the_engine_judges(
    tmp_path: Path, share: float, engine: Engine, wanted: tuple[int, str], *, auto: bool
) -> None:
    """A message that may fit is sent as it is, and what the engine says of it is what the client gets."""
    compaction, answer = "" if auto else "auto = false", Script() if engine == "empty" else ANSWER
    overflow = Overflow(prompt=engine, streamed="status")
    async with estimated(tmp_path, overflow, share, compaction, answer) as (served, studio):
        messages = told(1800)
        least, most = await bounds(served, messages)
        assert least < WINDOW <= most
        status, said, notices = await ask(served, messages)
        assert (status, said) == wanted
        assert notices[0] == "tight"
        assert studio.chats[0].body["messages"] == messages
        assert studio.chats[0].body["max_tokens"] == WINDOW - least
        assert len(studio.chats) == 1


async def test_what_surely_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Nothing is sent of which the fewest tokens fill the window."""
    async with estimated(tmp_path, Overflow(), 1) as (served, studio):
        messages = told(2640)
        assert (await bounds(served, messages))[0] >= WINDOW
        assert (await ask(served, messages))[:2] == (400, "context_length_exceeded")
        assert not studio.chats


async def test_an_engine_that_cuts_in_silence_is_told_of(tmp_path: Path) -> None:
    """What it reports to have read is less than the message has at least: the person knows, and no count is learned."""
    async with estimated(tmp_path, Overflow(policy="rollingWindow"), 1.3) as (served, studio):
        messages = told(2100)
        before = await bounds(served, messages)
        assert before[0] < WINDOW
        studio.count_tokens = lambda messages, tools: before[0] // 2
        status, said, notices = await ask(served, messages)
        assert (status, said) == (200, ANSWER)
        assert notices.count("truncated") == 2
        assert notices[0] == "tight"
        assert await bounds(served, messages) == before
        assert len(studio.chats) == 1


async def test_what_can_go_goes_first(tmp_path: Path) -> None:
    """Of a conversation whose last message may fit alone, nothing else is sent into a window that may be too small."""
    earlier = [
        {"role": ("user", "assistant")[turn % 2], "content": f"On crossing {turn} all was calm. " * 20}
        for turn in range(8)
    ]
    async with estimated(tmp_path, Overflow(policy="truncateMiddle"), 0.95) as (served, studio):
        messages = told(1800)
        status, said, notices = await ask(served, [*earlier, *messages])
        assert (status, said) == (200, ANSWER)
        [sent] = studio.chats
        assert sent.fitted
        assert sent.body["messages"][-1] == messages[-1]
        assert all(message not in sent.body["messages"] for message in earlier)
        assert "tight" in notices
        assert any(kind.startswith("compact") for kind in notices)
