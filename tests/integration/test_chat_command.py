"""`/compact` as a whole message of the person: elbowroom answers it itself, and no model ever reads it."""

from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL
from patient_counting import wait_for_counts
from scripted_pruner import text_of
from serving import Served, parse_frames
from serving import text_of as text_of_frames
from small_window import ask_whole, history, orders_of, small_window, turns_of

Body = dict[str, Any]
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
COMMAND = {"role": "user", "content": "/compact keep the boats,\n drop the weather"}
NEXT = {"role": "user", "content": "And the next ferry?"}


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


async def answered(served: Served, model: str, messages: list[Body]) -> Body:
    """Return the assistant's message of an answer."""
    status, answer = await ask_whole(served, {"model": model, "messages": messages})
    assert status == 200, answer
    message: Body = answer["choices"][0]["message"]
    return message


@MODELS
async def test_the_command_compacts_and_is_never_sent(tmp_path: Path, model: str) -> None:
    """The answer is one line with the sizes; the next prompt has the summary, and neither command nor line."""
    async with small_window(tmp_path, window=4000) as (served, studio):
        said = history(12)
        said.append(await answered(served, model, said))
        turns = len(turns_of(studio))
        line = await answered(served, model, [*said, COMMAND])
        assert line["content"].startswith("> *elbowroom: Compacted: 1,")
        assert len(turns_of(studio)) == turns
        order = text_of(orders_of(studio)[-1].body["messages"][-1])
        assert "<focus>\nkeep the boats, drop the weather\n</focus>" in order
        orders = len(orders_of(studio))
        await answered(served, model, [*said, COMMAND, line, NEXT])
        prompt = [text_of(each) for each in turns_of(studio)[-1].body["messages"]]
        assert len(orders_of(studio)) == orders
        assert sum("<elbowroom-summary>" in each for each in prompt) == 1
        assert not any("/compact" in each or "Compacted:" in each for each in prompt)
        assert prompt[-1] == NEXT["content"]


async def test_the_command_is_streamed_with_notices(tmp_path: Path) -> None:
    """In a stream the person is told while the compaction runs, and the usage is the size that is left."""
    async with small_window(tmp_path, window=4000, compaction='notices = "content"') as (served, studio):
        said = history(12)
        said.append(await answered(served, RAW_MODEL, said))
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": RAW_MODEL, "messages": [*said, {"role": "user", "content": " /tidy "}], **options}
        async with served.http.post(served.chat_url, json=body) as response:
            frames = parse_frames(await response.read())
        text = text_of_frames(frames)
        assert "Compacting conversation history" in text
        assert "elbowroom: Compacted: " in text
        usage = next(frame["usage"] for frame in frames if isinstance(frame, dict) and frame.get("usage"))
        assert 0 < usage["prompt_tokens"] < 1000
        line = {"role": "assistant", "content": text}
        await answered(served, RAW_MODEL, [*said, {"role": "user", "content": " /tidy "}, line, NEXT])
        assert not any("ompact" in text_of(each) for each in turns_of(studio)[-1].body["messages"][2:])


async def test_the_conversation_keeps_the_command_beside_its_branch(tmp_path: Path) -> None:
    """Command and line can be read again; what is said later stands in one branch without them."""
    async with small_window(tmp_path, window=4000) as (served, _):
        said = history(3)
        said.append(await answered(served, "writer", said))
        line = await answered(served, "writer", [*said, COMMAND])
        await answered(served, "writer", [*said, COMMAND, line, NEXT])
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [row] = (await response.json())["data"]
        kept = []
        for branch in ("latest", "all"):
            url = f"{served.url}/v1/conversations/{row['id']}/messages?branch={branch}"
            async with served.http.get(url) as response:
                kept.append([text_of(each["message"]) for each in (await response.json())["data"]])
        assert COMMAND["content"] not in kept[0]
        assert NEXT["content"] in kept[0]
        assert COMMAND["content"] in kept[1]
        assert line["content"] in kept[1]


@MODELS
async def test_a_chat_from_elsewhere_that_begins_with_the_command(tmp_path: Path, model: str) -> None:
    """A long chat that elbowroom has never seen is tidied: its conversation counts that, and how full it is."""
    async with small_window(tmp_path, window=4000) as (served, _):
        await answered(served, model, [*history(12), {"role": "assistant", "content": "So."}, COMMAND])
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [row] = (await response.json())["data"]
        assert row["compaction_count"] == 1
        assert 0 < row["context"]["tokens"] < 1200


async def test_a_command_that_nobody_answered_is_not_sent(tmp_path: Path) -> None:
    """A client that has no answer to it, since that failed or was stopped, sends it along; no model reads it."""
    async with small_window(tmp_path, window=4000) as (served, studio):
        said = history(2)
        said.append(await answered(served, RAW_MODEL, said))
        await answered(served, RAW_MODEL, [*said, COMMAND, COMMAND, NEXT])
        prompt = [text_of(each) for each in turns_of(studio)[-1].body["messages"]]
        assert not any("/compact" in each for each in prompt)
        assert prompt[-2:] == [said[-1]["content"], NEXT["content"]]


@pytest.mark.parametrize(
    ("text", "compaction"),
    [
        ("/compact", "chat_command = false"),
        ("/compacted files are where?", ""),
        ("/tidying up helps?", ""),
        ("What does /compact do?", ""),
        ("/compact " + "x " * 300, ""),
    ],
)
async def test_other_words_go_to_the_model(tmp_path: Path, text: str, compaction: str) -> None:
    """Where the setting forbids it, or a message only speaks of the command or is long, the model gets it."""
    async with small_window(tmp_path, window=4000, compaction=compaction) as (served, studio):
        said = history(2)
        said.append(await answered(served, RAW_MODEL, said))
        await answered(served, RAW_MODEL, [*said, {"role": "user", "content": text}])
        assert text_of(turns_of(studio)[-1].body["messages"][-1]) == text


async def test_nothing_to_compact_is_said(tmp_path: Path) -> None:
    """As the first message, or in a short chat, the answer says that nothing could be freed, and no model is asked."""
    async with small_window(tmp_path, window=4000) as (served, studio):
        assert "There is nothing to compact yet." in (await answered(served, RAW_MODEL, [COMMAND]))["content"]
        said = history(0)
        assert "Nothing could be freed" in (await answered(served, RAW_MODEL, [*said, COMMAND]))["content"]
        assert studio.chats == []


async def test_where_nothing_is_compacted_the_command_is_an_error(tmp_path: Path) -> None:
    """With compaction switched off the answer is the sentence that says how to switch it on."""
    async with small_window(tmp_path, compaction="enabled = false") as (served, studio):
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": [*history(1), COMMAND]})
        assert status == 400
        assert "compaction.enabled = true" in answer["error"]["message"]
        assert studio.chats == []
