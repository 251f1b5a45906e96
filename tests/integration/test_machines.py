"""Several LM Studios under one name: where a chat goes, when it moves, and that no client sees a machine fail."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from chatting import MODEL, chunks_of, eventually, finish_of
from manual_clock import ManualClock, settle
from read_metrics import value
from serving import Served, parse_frames, text_of
from several_machines import AGENT, NAME, Body, chats, machines, say
from task_prompts import title_body
from watched_stream import watched

from elbowroom.agents.admission import Priority
from elbowroom.demo import Cut, Error, Script, SimulatedModel, WaitFor
from elbowroom.errors import UpstreamUnreachable
from elbowroom.providers.machines import Machine
from elbowroom.server.state import PROVIDERS, SHARED

EVERYONE = pytest.mark.parametrize("model", ["writer", NAME], ids=["agent", "raw model"])


@EVERYONE
async def test_a_chat_stays_where_its_prefix_is(tmp_path: Path, model: str) -> None:
    """Two chats that take turns go to a machine each, whose engine finds all of the last prompt in its cache."""
    async with machines(tmp_path, 8192, 8192, agents=AGENT) as (served, studios):
        talks: list[list[Body]] = [[], []]
        for turn in range(3):
            for number, messages in enumerate(talks):
                await say(
                    served, messages, f"Question {turn} of chat {number}. " + f"Think of boat {number}. " * 20, model
                )
        assert chats(studios) == [3, 3]
        for studio in studios:
            for before, after in zip(studio.chats, studio.chats[1:], strict=False):
                assert after.reused_tokens >= (before.prompt_tokens or 0) - 8


def machines_of(served: Served) -> list[Machine]:
    """Return the machines of the server, whose clock stands still from now on."""
    found: list[Machine] = served.app[PROVIDERS].machines()
    return found


@EVERYONE
async def test_a_machine_that_has_gone_between_two_turns_is_missed_by_nobody(tmp_path: Path, model: str) -> None:
    """The next turn goes to another machine, and the one after it stays there, though the first one is back."""
    async with machines(tmp_path, 8192, 8192, agents=AGENT) as (served, studios):
        messages: list[Body] = []
        await say(served, messages, "One.", model)
        first, second = studios if studios[0].chats else studios[::-1]
        await first.stop()
        assert await say(served, messages, "Two.", model) == "I see."
        await first.start()
        await say(served, messages, "Three.", model)
        assert [len(first.chats), len(second.chats)] == [1, 2]
        assert second.chats[1].reused_tokens >= (second.chats[0].prompt_tokens or 0) - 8


@EVERYONE
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_machine_that_dies_over_a_prompt_is_replaced(tmp_path: Path, model: str, stream: bool) -> None:
    """Before the first word the step is asked on another machine, and the client hears of nothing."""
    async with machines(tmp_path, 8192, 8192, agents=AGENT) as (served, studios):
        never = asyncio.Event()
        for studio in studios:
            studio.enqueue(Script(WaitFor(never)))
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}

        async def answered() -> tuple[int, bytes]:
            async with served.http.post(served.chat_url, json=body) as response:
                return response.status, await response.read()

        asking = asyncio.create_task(answered())
        await eventually(lambda: sum(chats(studios)) == 1, "nobody was asked")
        first, second = studios if studios[0].chats else studios[::-1]
        second.scripts.clear()
        await first.stop()
        status, text = await asking
        assert status == 200
        assert b"I see." in text or text_of(parse_frames(text)) == "I see."
        assert b"error" not in text
        assert chats([first, second]) == [1, 1]


@EVERYONE
async def test_a_machine_that_dies_in_the_middle_ends_the_answer_as_any_engine_does(tmp_path: Path, model: str) -> None:
    """What was said stays, the client is told, and the next turn goes to another machine at once."""
    async with machines(tmp_path, 8192, 8192, agents=AGENT) as (served, studios):
        for studio in studios:
            studio.enqueue(Script("Half an answer ", Cut()))
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        async with served.http.post(served.chat_url, json=body) as response:
            text = await response.read()
        assert text_of(parse_frames(text)).strip() in ("Half", "Half an", "Half an answer")
        assert b"upstream_cut" in text
        first, second = studios if studios[0].chats else studios[::-1]
        assert not second.chats
        second.scripts.clear()
        await say(served, [], "Hello", model)
        assert chats([first, second]) == [1, 1]


async def test_a_crashing_model_is_asked_elsewhere(tmp_path: Path) -> None:
    """A machine that lists its models and fails over each prompt is left alone with this model."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        broken, sound = studios
        broken.enqueue(Script(Error("The model has crashed without additional information.")), repeat=True)
        for number in range(4):
            await say(served, [], f"Chat {number}.")
        assert len(sound.chats) == 4
        assert len(broken.chats) <= 3  # the first prompt was sent to it twice


@pytest.mark.slow
async def test_no_error_where_all_but_one_are_down(tmp_path: Path) -> None:
    """Of three machines two are away, whichever they are; where all are, the failure is told as for one machine."""
    async with machines(tmp_path, 8192, 8192, 8192) as (served, studios):
        for alive in studios:
            for studio in studios:
                await studio.stop()
            await alive.start()
            assert await say(served, [], "Hello") == "I see."
        for studio in studios:
            await studio.stop()
        refused = await served.chat(NAME)
        assert refused["error"]["code"] == "upstream_unreachable"
        await studios[2].start()
        assert await say(served, [], "Hello") == "I see."


async def test_a_chat_moves_where_its_machine_is_full_for_too_long(tmp_path: Path) -> None:
    """It waits for its own machine as long as another would read its prompt, then it moves and stays there."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        messages: list[Body] = []
        await say(served, messages, "Think of the boats. " * 200)
        first, second = studios if studios[0].chats else studios[::-1]
        clock, admission = ManualClock(), served.app[SHARED].admission
        admission._pools.clear()
        admission._given_clock = clock
        pool = next(one.id for one in machines_of(served) if one.address == first.base_url), MODEL
        async with admission.admitted(pool, capacity=8192, tokens=8192, priority=Priority.CHAT, prompt=100):
            asking = asyncio.create_task(say(served, messages, "And the sails?"))
            await eventually(lambda: admission.waiting(pool), "it does not wait for its machine")
            reading = (first.chats[0].prompt_tokens or 0) / 200
            await clock.elapse(reading - 1)
            await settle()
            assert admission.waiting(pool)
            assert not second.chats
            await clock.elapse(2)
            await eventually(lambda: second.chats, "it does not move")
            await asking
        assert len(second.chats) == 1
        await say(served, messages, "And the anchor?")
        assert chats([first, second]) == [1, 2]
        assert await value(served, "machine_moves_total", why="full") == 1


@pytest.mark.slow
async def test_no_prompt_goes_over_any_window(tmp_path: Path) -> None:
    """With windows of 8192 and 4096 tokens chats grow, and the larger machine goes: each prompt fits its window."""
    async with machines(tmp_path, 8192, 4096, answer="It is a long story. " * 30) as (served, studios):
        talks: list[list[Body]] = [[], []]
        for turn in range(10):
            if turn == 7:
                await studios[0].stop()
            for number, messages in enumerate(talks):
                await say(served, messages, f"Question {turn} of chat {number}. " + f"The boat of {turn}. " * 60)
        assert len(studios[0].chats) > 3
        assert len(studios[1].chats) > 3
        for studio in studios:
            assert all(chat.fitted for chat in studio.chats)


async def test_each_model_is_asked_where_it_is(tmp_path: Path) -> None:
    """Machines with different models: the list has all of them, and each goes to the machine that has loaded it."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        studios[0].unload(MODEL)
        for place, studio in enumerate(studios):
            studio.residency.models[f"own-{place}"] = SimulatedModel(f"own-{place}")
            studio.load(f"own-{place}", 4096)
        for place in (0, 1):
            await say(served, [], "Hello", f"desk/own-{place}")
            assert studios[place].chats[-1].instance_id == f"own-{place}"
        await say(served, [], "Hello")
        assert chats(studios) == [1, 2]
        async with served.http.get(f"{served.url}/v1/models") as response:
            listed = [row["id"] for row in (await response.json())["data"]]
        assert listed == [NAME, "desk/own-0", "desk/own-1"]


async def test_a_client_that_leaves_is_noticed_by_its_own_machine(tmp_path: Path) -> None:
    """The answer ends on the machine that gives it, and goes on on the other one."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        go_on = asyncio.Event()
        for studio in studios:
            studio.enqueue(Script("Slowly ", WaitFor(go_on), "said."))
        body = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        async with watched(served, body) as leaving:
            await leaving.until("Slowly")
            first, second = studios if studios[0].chats else studios[::-1]
            async with watched(served, body) as staying:
                await staying.until("Slowly")
                assert chats(studios) == [1, 1]
                leaving._response.close()
                await first.wait_until(lambda: first.disconnects)
                go_on.set()
                assert finish_of(chunks_of(await staying.rest())) == "stop"
        assert not second.disconnects


@pytest.mark.slow
async def test_side_requests_and_pruning_survive_a_dead_machine(tmp_path: Path) -> None:
    """Titles, embeddings, completions and compactions are asked on a machine that answers."""
    async with machines(tmp_path, 2048, 2048, answer="It is a long story. " * 20) as (served, studios):
        for studio in studios:
            studio.residency.models["embedder"] = SimulatedModel("embedder", type="embedding")
            studio.load("embedder", 2048)
        for dead, alive in ((studios[0], studios[1]), (studios[1], studios[0])):
            await dead.stop()
            messages: list[Body] = []
            for turn in range(5):
                await say(served, messages, f"Question {turn}. " + "The boat goes on. " * 50)
            for path, body in (
                ("chat/completions", title_body(3, model=NAME)),
                ("messages/count_tokens", {"model": NAME, "messages": messages}),
                ("completions", {"model": NAME, "prompt": "Once", "max_tokens": 5}),
                ("embeddings", {"model": "desk/embedder", "input": "Once"}),
            ):
                async with served.http.post(f"{served.url}/v1/{path}", json=body) as response:
                    assert response.status == 200, await response.text()
            assert alive.chats
            await dead.start()
        for studio in studios:
            assert all(chat.fitted for chat in studio.chats)


async def test_the_page_and_metrics_show_the_machines(tmp_path: Path) -> None:
    """Each machine is shown with its address, its window and its load, and whether it is left alone."""
    async with machines(tmp_path, 8192, 4096) as (served, studios):
        await say(served, [], "Hello")
        await studios[1].stop()
        machines_of(served)[1].failed(UpstreamUnreachable("It does not answer."))
        async with served.http.get(f"{served.url}/api/providers") as response:
            (row,) = (await response.json())["data"]
        up, down = row["machines"]
        assert (up["base_url"], up["reachable"]) == (studios[0].base_url, True)
        assert up["models"] == [{"id": MODEL, "window": 8192, "held": 0, "waiting": 0}]
        assert (down["reachable"], down["models"]) == (False, [])
        assert row["reachable"]
        assert [await value(served, "machine_up", machine=one["id"]) for one in (up, down)] == [1, 0]


async def test_nobody_is_overtaken_on_a_machine(tmp_path: Path) -> None:
    """Chats that find both machines full are answered there in the order in which they came, and on both machines."""
    async with machines(tmp_path, 4096, 4096) as (served, studios):
        await say(served, [], "Hello")
        admission = served.app[SHARED].admission
        pools = [(one.id, MODEL) for one in machines_of(served)]
        waiting = []
        async with AsyncExitStack() as held:
            for pool in pools:
                full = admission.admitted(pool, capacity=4096, tokens=4096, priority=Priority.CHAT, prompt=100)
                await held.enter_async_context(full)
            for number in range(6):
                text = f"Chat {number}. " + "The boat goes on. " * 350
                waiting.append(asyncio.create_task(say(served, [], text)))
                await eventually(lambda: sum(map(admission.waiting, pools)) == len(waiting), "it does not wait")
        await asyncio.gather(*waiting)
        for studio in studios:
            order = [chat.body["messages"][0]["content"][:7] for chat in studio.chats if len(chat.raw) > 1000]
            assert order == sorted(order)
            assert order
            assert all(chat.fitted for chat in studio.chats)


async def test_a_relayed_chat_stays_with_its_machine_too(tmp_path: Path) -> None:
    """Where context is not managed, a chat goes back to the machine that had it last, and on where that is away."""
    async with machines(tmp_path, 8192, 8192, provider="manage_context = false") as (served, studios):
        talks: list[list[Body]] = [[], []]
        for turn in range(3):
            for number, messages in enumerate(talks):
                await say(served, messages, f"Question {turn} of chat {number}. " + "The boat goes on. " * 20)
        assert chats(studios) == [3, 3]
        first, second = studios
        await first.stop()
        body = {"model": NAME, "messages": talks[0][:1], "stream": True}
        for _ in range(2):
            async with served.http.post(served.chat_url, json=body) as response:
                assert text_of(parse_frames(await response.read())) == "I see."
        assert chats([first, second]) == [3, 5]


async def test_a_pruning_agent_of_the_same_name_runs_beside_its_chat(tmp_path: Path) -> None:
    """An agent's chat is compacted by itself on its own machine, whose engine has its beginning."""
    agents = f'{AGENT}[compaction]\npruning_agent = "writer"\nbackground = false\n'
    async with machines(tmp_path, 2048, 2048, agents=agents, answer="It is a long story. " * 20) as (served, studios):
        messages: list[Body] = []
        for turn in range(6):
            await say(served, messages, f"Question {turn}. " + "The boat goes on. " * 60, "writer")
        assert sorted(map(bool, chats(studios))) == [False, True]
        assert sum(chats(studios)) > 6


async def test_a_pruning_model_may_be_on_another_machine(tmp_path: Path) -> None:
    """A chat on one machine is compacted with a model that only the other one has loaded."""
    settings = '[compaction]\nmodel = "pruner"\nbackground = false\n'
    story = "It is a long story. " * 20
    async with machines(tmp_path, 2048, 2048, agents=settings, answer=story) as (served, studios):
        chatting, pruning = studios
        pruning.unload(MODEL)
        pruning.residency.models["pruner"] = SimulatedModel("pruner")
        pruning.load("pruner", 4096)
        messages: list[Body] = []
        for turn in range(6):
            await say(served, messages, f"Question {turn}. " + "The boat goes on. " * 60)
        assert {chat.instance_id for chat in pruning.chats} == {"pruner"}
        assert len(chatting.chats) == 6
        assert all(chat.fitted for studio in studios for chat in studio.chats)
