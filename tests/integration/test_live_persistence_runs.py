"""What is kept of longer runs: answers in several requests, agents that ask others, compactions, and limits."""

import asyncio
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from agent_teams import agent, team
from chatting import AGENT, RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, eventually, stream_bytes
from outcome import chat
from own_tools import own_tool
from patient_counting import wait_for_counts
from read_conversations import all_kept, kept_of, of_turns, once_kept, told
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import text_of
from small_window import ANSWER, QUESTION, WINDOW, ask_whole, history, orders_of, small_window, turns_of

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.ledger import Chain
from elbowroom.demo import Reply, Script, ToolCall
from elbowroom.server.state import SHARED, Timing

NOUNS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
WHOLE_LOG = "".join(f"The {one} and the {two} saw the {three}.\n" for one, two, three in product(NOUNS, repeat=3))
ASK = ToolCall("ask_researcher", {"request": "Count the words of: a b c"})


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@own_tool
async def count(text: str) -> int:
    """Count the words."""
    return len(text.split())


def counting(target: Target) -> Sequence[ServerTool]:
    """Give every agent a tool."""
    return [count] if target.agent else []


async def test_an_answer_that_goes_on_after_a_restart(tmp_path: Path) -> None:
    """One that was stopped before the edge of the window is one message, with the usage of all its requests."""

    def writes_the_log(body: dict[str, Any]) -> str:
        last = content_of(body["messages"][-1])
        return WHOLE_LOG if last == QUESTION else rest_of(WHOLE_LOG, content_of(body["messages"][-2]))

    async with small_window(tmp_path, writes_the_log) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": history(5)}))
        kept = await kept_of(served)
        asked = turns_of(studio)
        assert len(asked) > 1
        [said] = of_turns(kept)
        assert (said.message["content"], said.status) == (text_of(chunks), "complete")
        totals = kept.row.totals
        assert totals.pruning is not None
        assert totals.steps - totals.pruning.steps == 1
        assert totals.usage.total - totals.pruning.usage.total > sum(chat.prompt_tokens or 0 for chat in asked)
        assert kept.row.fill is not None
        assert kept.row.fill.tokens <= kept.row.fill.window == WINDOW
        assert kept.row.totals.compactions == len(kept.compactions) > 0


async def test_a_compaction_before_an_answer(tmp_path: Path) -> None:
    """It is kept with the sizes before and after it; its order is no message of the conversation."""
    async with small_window(tmp_path) as (served, studio):
        await chat(served, RAW_MODEL, stream=True, messages=history(8))
        assert orders_of(studio)
        kept = await kept_of(served)
        [compaction] = kept.compactions
        assert compaction.after < compaction.before
        assert compaction.details is not None
        assert compaction.details.seconds > 0
        removed = compaction.details.messages_removed
        assert removed + compaction.details.messages_kept == len(history(8))
        assert 0 < compaction.details.groups_kept < len(history(8)) - removed
        assert compaction.details.summary.startswith("## What must hold\nThe log of the ferry is kept")
        assert "<" not in compaction.details.summary
        assert [message.message for message in kept.messages[:-1]] == history(8)
        assert told(kept)[-1] == ("assistant", ANSWER)


async def test_a_question_that_is_asked_again_by_itself(tmp_path: Path) -> None:
    """A prompt that the engine refuses and then takes leaves one answer, and no empty one."""
    text = "request (1200 tokens) exceeds the available context size (900 tokens), try increasing it"
    scripts = [Script(Reply(400, {"error": text}))]
    async with small_window(tmp_path, lambda body: scripts.pop() if scripts else ANSWER) as (served, studio):
        outcome = await chat(served, RAW_MODEL, stream=True, messages=history(5))
        assert outcome.error is None
        assert len(turns_of(studio)) == 2
        assert [(said.message["content"], said.status) for said in of_turns(await kept_of(served))] == [
            (ANSWER, "complete")
        ]


async def test_an_agent_that_serves_as_a_tool(tmp_path: Path) -> None:
    """What it says and does in there is its own; the conversation has its last words, as the tool's result."""
    lines = {
        "writer": [Script("Asking. ", ASK), "There are three."],
        "researcher": [Script("Counting. ", ToolCall("count", {"text": "a b c"})), "Three words."],
    }
    agents = [agent("writer", agent_tools=["researcher"]), agent("researcher")]
    async with team(tmp_path, agents, lines, toolbox=counting) as (served, _):
        await stream_bytes(served, chat_body("How many?"))
        [kept] = await all_kept(served)
        assert told(kept) == [
            ("user", "How many?"),
            ("assistant", "Asking. "),
            ("tool", "Three words."),
            ("assistant", "There are three."),
        ]
        assert kept.row.totals.steps == 2


async def test_a_conversation_that_is_handed_over(tmp_path: Path) -> None:
    """Both agents' replies are one turn, which the next request to the first one knows again."""
    lines = {"triage": [Script("One moment.", ToolCall("transfer_to_editor"))], "editor": ["I am here."]}
    agents = [agent("triage", handoffs=["editor"]), agent("editor", name="The Editor")]
    async with team(tmp_path, agents, lines) as (served, _):
        asked = {"role": "user", "content": "Help."}
        chunks = chunks_of(await stream_bytes(served, {"model": "triage", "messages": [asked]}))
        said = {"role": "assistant", "content": text_of(chunks)}
        messages = [asked, said, {"role": "user", "content": "Thanks."}]
        await stream_bytes(served, {"model": "triage", "messages": messages})
        kept = await kept_of(served)
        assert [role for role, _ in told(kept)][:5] == ["user", "assistant", "tool", "assistant", "user"]
        turns = await served.app[SHARED].recording.conversations.turns(  # type: ignore[union-attr]
            kept.row.id, Chain.of("", "triage", messages).keys
        )
        assert [turn.parent for turn in turns] == [kept.messages[0].key]


async def test_a_run_that_comes_to_its_limit(tmp_path: Path) -> None:
    """The paragraph that says why is the last message, behind the results that came before it."""
    agents = agent("writer", max_turns=1)
    async with elbowroom_with_studio(tmp_path, agents=agents, toolbox=counting) as (served, studio):
        studio.enqueue(Script("Counting.", ToolCall("count", {"text": "a b"})))
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        kept = await kept_of(served)
        roles = [(message.message["role"], message.status) for message in of_turns(kept)]
        assert roles == [("assistant", "complete"), ("tool", "complete"), ("assistant", "complete")]
        assert text_of(chunks) == f"Counting.\n\n{told(kept)[-1][1]}"
        assert "Stopped after 1 model call" in told(kept)[-1][1]


async def test_parallel_tools_are_kept_as_they_end(tmp_path: Path) -> None:
    """The result of a tool that has ended is there while another one still works."""
    gate = asyncio.Event()

    @own_tool
    async def wait_long() -> str:
        """Wait until the test says so."""
        await gate.wait()
        return "Waited."

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [count, wait_long]) as (served, studio):
        calls = [ToolCall("wait_long"), ToolCall("count", {"text": "a b"})]
        studio.enqueue(Script(*calls), "Done.")
        asking = asyncio.create_task(stream_bytes(served, chat_body()))
        kept = await once_kept(served, lambda kept: len(of_turns(kept)) == 2)
        assert told(kept)[-1] == ("tool", "2")
        gate.set()
        await asking
        assert [content for _, content in told(await kept_of(served))] == ["Hello", "", "2", "Waited.", "Done."]


async def test_nothing_is_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    """The client still learns an id, and the answer is the same."""
    agents = f"{AGENT}\n[store]\nconversations = false\n"
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.enqueue("One.")
        outcome = await chat(served, "writer", stream=True)
        assert outcome.text == "One."
        assert outcome.headers["x-conversation-id"].startswith("conv_")
        assert served.app[SHARED].recording.conversations is None


async def test_an_answer_above_the_trigger_by_its_usage(tmp_path: Path) -> None:
    """The conversation is compacted behind it, and keeps that it was; the fill falls with it."""
    messages, window = history(31), 4096
    timing = Timing(quiet=0.02)
    answer = " ".join(["The ferry left at noon and came back in the evening."] * 20)
    async with small_window(tmp_path, lambda body: answer, window=window, timing=timing) as (served, studio):
        status, _ = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
        assert status == 200
        await eventually(lambda: orders_of(studio), "nothing is compacted behind the answer")
        kept = await once_kept(served, lambda kept: kept.compactions)
        answered = turns_of(studio)[0]
        used = (answered.prompt_tokens or 0) + answered.completion_tokens
        assert kept.compactions[0].before >= used
        kept = await once_kept(served, lambda kept: kept.row.fill is not None and kept.row.fill.tokens < used)
        assert kept.row.fill is not None
        assert abs(kept.row.fill.tokens - kept.compactions[0].after) < window // 50


@pytest.mark.parametrize(("reported", "compactions"), [(3400, 1), (2100, 0)])
async def test_the_engine_knows_better_how_full_its_window_is(tmp_path: Path, reported: int, compactions: int) -> None:
    """An answer that ends above the trigger by the usage of its last step is compacted behind, whatever we count."""
    usage = {"prompt_tokens": reported, "completion_tokens": 12, "total_tokens": reported + 12}
    ended = asyncio.Event()

    def model(body: dict[str, Any]) -> Script:
        if body.get("max_tokens") == 1:
            ended.set()
        return Script(ANSWER, usage=usage)

    async with small_window(tmp_path, model, window=4096, timing=Timing(quiet=0.02)) as (served, studio):
        await ask_whole(served, {"model": RAW_MODEL, "messages": history(24)})
        if compactions:
            await asyncio.wait_for(ended.wait(), 60)
        else:
            await asyncio.sleep(0.3)  # for an order that would be one too many
        assert len(orders_of(studio)) == compactions
        assert (turns_of(studio)[0].prompt_tokens or 0) < 2100
