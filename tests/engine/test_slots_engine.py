"""Conversations that take turns in few slots of the real llama.cpp go on where they were, by its own report."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest
from llama_server import LlamaServer, Options
from prefix_reuse import Reading, readings_of
from recording_relay import RecordingRelay
from serving import Served, serve, settings_for
from spread_variants import spread

from elbowroom.context.costs import Moving
from elbowroom.providers import slot_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recording_relay import Request

ANSWER: Final = "So it is."
ABOUT: Final = ("The ferry left the pier. ", "A tram stops here again. ", "No bus runs on sundays. ")
WINDOW: Final = 8192


@dataclass(slots=True)
class Turns:
    """Conversations through elbowroom, each with its history, that take turns at the engine behind a relay."""

    served: Served
    relay: RecordingRelay
    histories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def ask(self, about: str) -> None:
        """Go on with the conversation about something."""
        history = self.histories.setdefault(about, [])
        text = f"And what came then, after {len(history)}?" if history else f"{about * 90} What came then?"
        history.append({"role": "user", "content": text})
        body = {"model": "openai/tiny", "messages": history, "max_tokens": 8, "temperature": 0, "seed": 7}
        async with self.served.http.post(
            self.served.chat_url, json=body, headers={"X-Conversation-Id": about}
        ) as response:
            assert response.status == 200, await response.text()
        history.append({"role": "assistant", "content": ANSWER})

    def readings(self, about: str) -> list[Reading]:
        """Return what the engine has read for a conversation, of the requests that it has answered."""
        return readings_of([one for one in self.chats(about) if b'"timings"' in one.answer])

    def chats(self, about: str) -> list[Request]:
        """Return the requests of a conversation that went to the engine."""
        said = f"{about * 90} What came then?"
        return [one for one in self.relay.requests if one.is_chat and one.json()["messages"][0]["content"] == said]

    def returns(self) -> list[bool]:
        """Return for each time that a conversation went on whether all that it had read before was cached."""
        found = []
        for about in self.histories:
            before, *then = self.readings(about)
            for after in then:
                found.append(after.cached >= before.prompt)
                before = after
        return found

    def moves(self, action: str) -> int:
        """Return how often the engine was asked to save or restore a slot."""
        return len([one for one in self.relay.requests if f"action={action}" in one.path])


def made(folder: Path) -> Path:
    """Make a folder and return it."""
    folder.mkdir()
    return folder


async def take_turns(
    engine: LlamaServer, folder: Path, abouts: tuple[str, ...], rounds: int, middle: Callable[[int], None] | None = None
) -> Turns:
    """Have these conversations take turns; `middle` is called before each round with its number."""
    async with RecordingRelay(engine.base_url) as relay:
        settings = settings_for(relay.base_url, kind="openai", provider="manage_context = true")
        async with serve(made(folder), settings) as served:
            turns = Turns(served, relay)
            for number in range(rounds):
                if middle is not None:
                    middle(number)
                for about in abouts:
                    await turns.ask(about)
    return turns


@pytest.fixture
def _pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all saved, since on a busy machine a tiny model may read faster than a file is written."""
    monkeypatch.setattr(Moving, "pays", lambda *_: True)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said of slots."""
    return [one.getMessage() for one in caplog.records if one.name.endswith("admission.slots")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slots", "conversations", "rounds"), [(1, 2, 11), (2, 3, 8)], ids=["two in one", "three in two"]
)
async def test_a_slot_is_restored_in_each_return(
    start_engine: Callable[[Options], LlamaServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    slots: int,
    conversations: int,
    rounds: int,
) -> None:
    """Of 20 returns or more each finds in the cache all that was read of the conversation; it is said once."""
    caplog.set_level(logging.INFO)
    saves = made(tmp_path / "slots")
    more = {"slot_save_path": f"{saves}/"}
    engine = start_engine(Options(context_length=WINDOW * slots, slots=slots, more=more))
    turns = await take_turns(engine, tmp_path / "elbowroom", ABOUT[:conversations], rounds)
    returns = turns.returns()
    assert len(returns) >= 20
    assert all(returns)
    assert turns.moves("restore") == len(returns)
    assert [line for line in told(caplog) if "saved" in line] == told(caplog)
    assert len(told(caplog)) == 1
    names = [file.name for file in saves.iterdir()]
    assert len([name for name in names if name.endswith(".slot")]) == conversations
    assert all(name.startswith("elbowroom-") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "folder"), spread(["one", "two", "pool"], [True, False]))
async def test_an_engine_that_keeps_by_itself_is_left_alone(
    start_engine: Callable[[Options], LlamaServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    folder: bool,
) -> None:
    """With `--cache-ram`, all is found in each return; nothing is restored, and after the first no slot is named."""
    caplog.set_level(logging.INFO)
    more = {"cache_ram_mib": 512} | ({"slot_save_path": f"{tmp_path}/"} if folder else {})
    slots, parts = {"one": (1, 1), "two": (2, 2), "pool": (2, 3)}[kind]
    engine = start_engine(Options(context_length=WINDOW * parts, slots=slots, shared_pool=kind == "pool", more=more))
    turns = await take_turns(engine, tmp_path / "elbowroom", ABOUT, 3)
    assert all(turns.returns())
    assert turns.moves("restore") == 0
    assert not [one for about in ABOUT for one in turns.chats(about)[1:] if "id_slot" in one.json()]
    assert len(told(caplog)) == 1
    assert ("keeps by itself" if folder else "cannot save its slots") in told(caplog)[0]


@pytest.mark.slow
async def test_without_a_folder_slots_are_left_alone(
    start_engine: Callable[[Options], LlamaServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once what to start the server with, which chooses its slots itself."""
    caplog.set_level(logging.INFO)
    engine = start_engine(Options(context_length=WINDOW * 2, slots=2))
    turns = await take_turns(engine, tmp_path / "elbowroom", ABOUT[:2], 3)
    assert all(turns.returns())
    assert len(told(caplog)) == 1
    assert "--slot-save-path" in told(caplog)[0]
    assert turns.moves("save") == turns.moves("restore") == 0
    assert not [one for about in ABOUT for one in turns.chats(about) if "id_slot" in one.json()]


@pytest.mark.slow
@pytest.mark.usefixtures("_pays")
async def test_after_a_restart_conversations_find_their_slots(
    start_engine: Callable[[Options], LlamaServer], tmp_path: Path
) -> None:
    """What elbowroom no longer knows is found by the engine, and has its slot and its file from then on."""
    more = {"slot_save_path": f"{tmp_path}/"}
    engine = start_engine(Options(context_length=WINDOW * 2, slots=2, more=more))
    async with RecordingRelay(engine.base_url) as relay:
        settings = settings_for(relay.base_url, kind="openai", provider="manage_context = true")
        histories: dict[str, list[dict[str, Any]]] = {}
        turns = None
        for number, abouts in enumerate((ABOUT[:2], (*ABOUT[1::-1], *ABOUT, *ABOUT, *ABOUT))):
            async with serve(made(tmp_path / f"elbowroom-{number}"), settings) as served:
                turns = Turns(served, relay, histories)
                for about in abouts:
                    await turns.ask(about)
    assert turns is not None
    assert all(turns.returns())


@pytest.mark.slow
@pytest.mark.usefixtures("_pays")
async def test_a_slot_that_cannot_be_saved_or_restored_fails_no_request(
    start_engine: Callable[[Options], LlamaServer], tmp_path: Path
) -> None:
    """Without its files, and then without its folder, a conversation is answered after it was read anew."""
    saves = made(tmp_path / "slots")
    engine = start_engine(Options(context_length=WINDOW, more={"slot_save_path": f"{saves}/"}))

    def spoil(number: int) -> None:
        if number == 4:
            for file in saves.iterdir():
                file.unlink()
        if number == 6:
            shutil.rmtree(saves)

    turns = await take_turns(engine, tmp_path / "elbowroom", ABOUT[:2], 9, spoil)
    assert len(turns.returns()) == 16
    assert all(turns.returns()[:3])
    assert not all(turns.returns())


@pytest.mark.slow
async def test_a_chat_that_the_engine_forgets_is_answered(
    start_engine: Callable[[Options], LlamaServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that waited in the engine before it, for another program, has taken the slot's release for itself."""
    monkeypatch.setattr(slot_files, "LOOK_SECONDS", 0.5)
    saves = made(tmp_path / "slots")
    engine = start_engine(Options(context_length=WINDOW, more={"slot_save_path": f"{saves}/"}))

    async def until_waiting(requests: int) -> None:
        while True:
            async with http.get(f"{engine.base_url}/metrics") as metrics:
                text = await metrics.text()
            if f"llamacpp:requests_deferred {requests}\n" in text and "llamacpp:requests_processing 1\n" in text:
                return
            await asyncio.sleep(0.02)

    async with aiohttp.ClientSession() as http, RecordingRelay(engine.base_url) as relay:
        settings = settings_for(relay.base_url, kind="openai", provider="manage_context = true")
        async with serve(made(tmp_path / "elbowroom"), settings) as served:
            turns = Turns(served, relay)
            endless = {"prompt": "It goes on.", "n_predict": WINDOW, "ignore_eos": True, "stream": True}
            working = await http.post(f"{engine.base_url}/completion", json=endless)
            saving = asyncio.create_task(engine.post("/slots/0?action=save", {"filename": "theirs"}))
            await until_waiting(1)
            asked = asyncio.create_task(turns.ask(ABOUT[0]))
            await until_waiting(2)
            working.close()
            assert (await saving)[0] == 200
            await asyncio.wait_for(asked, 30)
            assert len(turns.chats(ABOUT[0])) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("_pays")
@pytest.mark.parametrize("slots", [1, 2])
async def test_conversations_at_once_of_which_some_are_left(
    start_engine: Callable[[Options], LlamaServer], tmp_path: Path, slots: int
) -> None:
    """Clients that leave while they wait, read or are answered hold no slot, and the others are answered.

    One at a time, they find again what was read of them.
    """
    more = {"slot_save_path": f"{tmp_path}/"}
    engine = start_engine(Options(context_length=WINDOW * slots, slots=slots, more=more))
    async with RecordingRelay(engine.base_url) as relay:
        settings = settings_for(relay.base_url, kind="openai", provider="manage_context = true")
        async with serve(made(tmp_path / "elbowroom"), settings) as served:
            turns = Turns(served, relay)
            for number in range(4):
                asked = [asyncio.create_task(turns.ask(about)) for about in ABOUT]
                left = [asyncio.create_task(turns.ask(f"Gulls {number}. ")) for number in range(3)]
                for wait, task in zip((0.0, 0.05, 0.1 * number), left, strict=True):
                    await asyncio.wait([task], timeout=wait)
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
                await asyncio.gather(*asked)
            for about in ABOUT:
                await turns.ask(about)
            for about in ABOUT:
                await turns.ask(about)
                assert turns.readings(about)[-1].cached >= turns.readings(about)[-2].prompt
