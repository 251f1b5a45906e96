"""What an agent has read in earlier turns it still knows, though the client sends back nothing but its words."""

import asyncio
from pathlib import Path

from agent_teams import agent
from chatting import eventually
from note_reader import SECRET, Message, Person, knows, note_reader, prompt_of, reading

from elbowroom.demo import Script, ToolCall, WaitFor


async def test_the_prompt_is_what_the_engine_has_read(tmp_path: Path) -> None:
    """The next turn's prompt begins with the last one of the turn before, byte for byte, for many turns."""
    async with note_reader(tmp_path) as (served, studio):
        ada = Person(served)
        after: list[Message] = []
        for number in range(4):
            studio.enqueue(
                reading(f"{number}.md"), reading("b.md", ""), Script("Hm.", ToolCall("nothing")), f"Answer {number}."
            )
            last = after
            await ada.say(f"Question {number}?")
            first, *_, after = (prompt_of(studio, at) for at in range(-4, 0))
            assert first[: len(last)] == last
            assert len(after) == 2 + 8 * number + 6
        studio.enqueue("Fine.")
        await ada.say("Thanks.")
        assert prompt_of(studio)[: len(after)] == after
        assert prompt_of(studio)[len(after) :] == [
            {"role": "assistant", "content": "Answer 3."},
            {"role": "user", "content": "Thanks."},
        ]


async def test_edits_and_other_answers(tmp_path: Path) -> None:
    """An answer that was edited stays as it is; each that was asked for again has its own results, in each branch."""
    async with note_reader(tmp_path) as (served, studio):
        ada = Person(served)
        studio.enqueue(reading("first.md"), "One.", reading("second.md"), "Two.")
        await ada.say("What does it say?")
        first = ada.history.pop()
        await ada.ask()
        assert not knows(prompt_of(studio, 2))
        studio.enqueue("Fine.", "Fine.", "Fine.")
        await ada.say("Thanks.")
        assert f"second.md: {SECRET}" in str(prompt_of(studio))
        assert "first.md" not in str(prompt_of(studio))
        branch = Person(served, history=[ada.history[0], first])
        await branch.say("Thanks.")
        assert f"first.md: {SECRET}" in str(prompt_of(studio))
        edited = Person(served, history=[ada.history[0], {"role": "assistant", "content": "Nothing."}])
        await edited.say("Thanks.")
        assert prompt_of(studio)[1:] == edited.history[:-1]


async def test_two_agents_in_one_chat(tmp_path: Path) -> None:
    """Another agent that is asked in the same chat gets what was said, not what the first one has read."""
    agents = agent("reader") + agent("writer")
    async with note_reader(tmp_path, agents=agents) as (served, studio):
        ada = Person(served, {"X-Conversation-Id": "chat"}, model="reader")
        studio.enqueue(reading(), "One.", "Two.", "Three.")
        await ada.say("What does it say?")
        ada.model = "writer"
        await ada.say("And you?")
        assert prompt_of(studio)[1:] == ada.history[:-1]
        ada.model = "reader"
        await ada.say("And now?")
        assert knows(prompt_of(studio))


async def test_handovers(tmp_path: Path) -> None:
    """A turn that was handed over leaves no trace but its answer: who was asked decides anew."""
    agents = agent("triage", handoffs=["writer"]) + agent("writer")
    async with note_reader(tmp_path, agents=agents) as (served, studio):
        ada = Person(served, model="triage")
        studio.enqueue(reading("first.md"), "One.", "Two.")
        studio.enqueue(Script("One moment.", ToolCall("transfer_to_writer")), reading("second.md"), "Three.", "Four.")
        for question in ("What does it say?", "Thanks.", "And the other one?"):
            await ada.say(question)
        assert f"second.md: {SECRET}" in str(prompt_of(studio))
        await ada.say("And now?")
        sent = prompt_of(studio)
        assert f"first.md: {SECRET}" in str(sent)
        assert sent[-4:] == ada.history[-5:-1]


async def test_a_stopped_answer(tmp_path: Path) -> None:
    """What was read before the client left is there, behind the words that it has got."""
    waiting = asyncio.Event()
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue(reading(), Script("It says that", WaitFor(waiting)), "Fine.")
        question = {"role": "user", "content": "What does it say?"}
        body = {"model": "writer", "messages": [question], "stream": True}
        async with served.http.post(served.chat_url, json=body) as response:
            seen = b""
            while b"that" not in seen:
                seen += await response.content.readany()
        await eventually(lambda: studio.open_requests == 0, "the answer goes on")
        said = {"role": "assistant", "content": "Let me look.\n\nIt says that"}
        ada = Person(served, history=[question, said])
        await ada.say("Go on.")
        sent = prompt_of(studio)
        assert [message["role"] for message in sent[1:]] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[-2] == {"role": "assistant", "content": "It says that"}
        assert knows(sent)


async def test_tools_of_both(tmp_path: Path) -> None:
    """In a step that calls the client's tool as well, the server's result stands beside the client's."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    async with note_reader(tmp_path) as (served, studio):
        both = Script("Both.", ToolCall("read_note", {"path": "a.md"}), ToolCall("look"))
        studio.enqueue(both, "Fine.")
        question = {"role": "user", "content": "What does it say?"}
        answer = await served.chat("writer", messages=[question], tools=[tool])
        said = answer["choices"][0]["message"]
        [call] = said["tool_calls"]
        seen = {"role": "tool", "tool_call_id": call["id"], "content": "Nothing."}
        await served.chat("writer", messages=[question, said, seen], tools=[tool])
        sent = prompt_of(studio)[1:]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
        assert [made["function"]["name"] for made in sent[1]["tool_calls"]] == ["read_note", "look"]
        assert [made["id"] for made in sent[1]["tool_calls"]] == [result["tool_call_id"] for result in sent[2:]]
        assert knows(sent)


async def test_a_restart(tmp_path: Path) -> None:
    """What was read before the server was started anew is read again."""
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue(reading(), "One.")
        ada = Person(served)
        await ada.say("What does it say?")
        done = prompt_of(studio)
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue("Fine.")
        await Person(served, history=ada.history).say("Thanks.")
        assert prompt_of(studio)[: len(done)] == done


async def test_messages_from_the_queue(tmp_path: Path) -> None:
    """What a person said while the agent worked stands in later prompts where the agent has read it."""
    waiting = asyncio.Event()
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue(Script(WaitFor(waiting), ToolCall("read_note", {"path": "a.md"})), "One.", "Fine.")
        ada = Person(served, {"X-Conversation-Id": "chat"})
        answering = asyncio.create_task(ada.say("What does it say?"))
        await eventually(lambda: studio.open_requests == 1, "nobody is asked")
        queue = f"{served.url}/v1/conversations/chat/queue"
        async with served.http.post(queue, json={"content": "Be quick."}) as response:
            assert response.status < 300, await response.text()
        waiting.set()
        await answering
        done = prompt_of(studio)
        assert done[-1] == {"role": "user", "content": "Be quick."}
        await ada.say("Thanks.")
        assert prompt_of(studio)[: len(done)] == done
