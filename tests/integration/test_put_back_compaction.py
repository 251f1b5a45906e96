"""What was put back is compacted as all else is: the compaction is found again, and each part of it is paid once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import AGENT, AGENT_WITHOUT_CACHE, elbowroom_with_studio
from note_reader import Person, knows, reading, toolbox
from own_tools import own_tool
from patient_counting import wait_for_counts
from request_checks import assert_fits
from serving import Served
from small_window import history, orders_of, small_window, turns_of

from elbowroom.demo import Script, SimulatedLMStudio, ToolCall

WINDOW: Final = 4096
TURNS: Final = 12
WORDS: Final = "The boat was half full, the sea was calm and the engine ran well on this crossing. "


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@own_tool
async def read_log(day: int) -> str:
    """Read the log of a day."""
    return f"Log of day {day}: {WORDS * 12}"


def reads_log(body: dict[str, Any]) -> Script | str:
    """Read the log of the day that is asked for, then answer."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return "It is read."
    return Script("Let me look.", ToolCall("read_log", {"day": int(last["content"].split()[-1])}))


@pytest.mark.long
async def test_many_turns(tmp_path: Path) -> None:
    """Each turn begins with what the last one left, reads the log of the day before again, and pays for little."""
    agents, compaction = AGENT_WITHOUT_CACHE, "background = false"
    async with small_window(
        tmp_path, reads_log, agents=agents, window=WINDOW, compaction=compaction, toolbox=lambda target: [read_log]
    ) as (served, studio):
        ada = Person(served)
        for day in range(TURNS):
            ordered = len(orders_of(studio))
            await ada.say(f"What happened on day {day}")
            first, second = turns_of(studio)[-2:]
            assert_fits(first)
            assert_fits(second)
            before = str(first.body["messages"])
            assert day == 0 or f"Log of day {day - 1}: " in before or len(orders_of(studio)) > ordered
            assert len(orders_of(studio)) <= ordered + 1
        paid = len(orders_of(studio))
        assert 1 <= paid <= TURNS // 3
        entries = ["Log of day 0: " in str(turn.body["messages"]) for turn in turns_of(studio)]
        assert entries[2]
        assert not entries[-1]


@pytest.mark.slow
async def test_where_nothing_is_compacted(tmp_path: Path) -> None:
    """A conversation that fits without what was put back is answered: the oldest results are left away."""
    messages = history(24)
    async with small_window(
        tmp_path,
        reads_log,
        agents=AGENT_WITHOUT_CACHE,
        window=WINDOW,
        compaction="enabled = false",
        toolbox=lambda target: [read_log],
    ) as (served, studio):
        ada = Person(served, history=messages[:-1])
        for day in range(10):
            await ada.say(f"What happened on day {day}")
        sent = [str(turn.body["messages"]) for turn in turns_of(studio)]
        assert "Log of day 0: " in sent[2]
        assert "Log of day 0: " not in sent[-1]
        assert "Log of day 9: " in sent[-1]
        for turn in turns_of(studio):
            assert_fits(turn)


@pytest.mark.slow
async def test_strangers_and_compactions(tmp_path: Path) -> None:
    """A summary may tell what was read: nobody else's turn begins with it, and none is left for strangers."""
    async with small_window(
        tmp_path, reads_log, agents=AGENT_WITHOUT_CACHE, window=WINDOW, toolbox=lambda target: [read_log]
    ) as (served, studio):
        ada = Person(served)
        for day in range(TURNS):
            await ada.say(f"What happened on day {day}")
        assert orders_of(studio)
        await Person(served, {"X-Elbowroom-User": "bob"}).say("How on day 1")
        for who in ({"X-Elbowroom-User": "bob"}, {}):
            other = Person(served, who, history=[*ada.history])
            ordered = len(turns_of(studio))
            await other.say("What happened on day 99")
            sent = turns_of(studio)[ordered].body["messages"]
            assert sent[1:] == other.history[:-1]


@asynccontextmanager
async def four_days(folder: Path) -> AsyncIterator[tuple[Served, SimulatedLMStudio, Person]]:
    """Run a server where a person has asked about four days, for each of which the model has read a log."""
    async with small_window(
        folder, reads_log, agents=AGENT_WITHOUT_CACHE, window=WINDOW, toolbox=lambda target: [read_log]
    ) as (served, studio):
        ada = Person(served)
        for day in range(4):
            await ada.say(f"What happened on day {day}")
        yield served, studio, ada


async def test_by_hand(tmp_path: Path) -> None:
    """A compaction that a person asks for takes in what was read as well, and counts as one of the conversation."""
    async with four_days(tmp_path) as (served, studio, ada):
        body = {"model": "writer", "messages": [*ada.history, {"role": "user", "content": "And on day 4"}]}
        async with served.http.post(f"{served.url}/v1/conversations/{ada.conversation}/compact", json=body) as response:
            answer = await response.json()
        assert answer["compacted"], answer
        assert answer["before"] > 4 * len(WORDS) * 12 // 6
        [order] = orders_of(studio)
        assert "Log of day 0: " in str(order.body["messages"])
        async with served.http.get(f"{served.url}/v1/conversations/{ada.conversation}") as response:
            assert len((await response.json())["compactions"]) == 1


async def test_an_unmanaged_provider(tmp_path: Path) -> None:
    """A provider that looks after its window itself gets what was read as well."""
    agents = f'{AGENT}provider = "openai"\n'
    async with elbowroom_with_studio(tmp_path, agents=agents, kind="openai", toolbox=toolbox) as (served, studio):
        ada = Person(served)
        studio.enqueue(reading(), "One.", "Fine.")
        await ada.say("What does it say?")
        await ada.say("Thanks.")
        assert knows(studio.chats[-1].body["messages"])


async def test_by_hand_after_the_answer(tmp_path: Path) -> None:
    """A compaction of the kept conversation takes in what the last turn has read, too: its sizes are the gauge's."""
    async with four_days(tmp_path) as (served, studio, ada):
        url = f"{served.url}/v1/conversations/{ada.conversation}"
        async with served.http.get(url) as response:
            gauge = (await response.json())["context"]["tokens"]
        for wish in ({"preview": True}, {}):
            async with served.http.post(f"{url}/compact", json=wish) as response:
                assert gauge - 20 < (await response.json())["before"] <= gauge, wish
        async with served.http.get(url) as response:
            [made] = (await response.json())["compactions"]
        assert gauge - 20 < made["before"] <= gauge
        await ada.say("And on day 4")
        [order, sent] = orders_of(studio)[0], turns_of(studio)[-2]
        assert "Log of day 3: " in str(order.body["messages"]) or "Log of day 3: " in str(sent.body["messages"])
