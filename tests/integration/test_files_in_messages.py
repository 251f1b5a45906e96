"""Files, notes and pasted text that a client puts into a message never end a chat, however large they are."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agent_teams import notices_of
from chatting import RAW_MODEL, chunks_of, eventually, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import ANSWER, ask_whole, orders_of, small_window, turns_of
from spread_variants import sample

from elbowroom.server.state import SHARED, Timing

WINDOW = 4096
QUESTION = "When does the last ferry leave, and from which pier? Answer in ONE sentence."
LINES = [f"Line {number}: boat {number * 7919} left pier {number % 9} at noon.\n" for number in range(1200)]
FILE = "".join(LINES)
TASK = "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n\n"


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def open_webui(question: str) -> str:
    """Return a question with a file as Open WebUI's template for files has it."""
    return f'{TASK}<context>\n<source id="1" name="log.md">{FILE}</source>\n</context>\n\n{question}'


def copilot(question: str) -> str:
    """Return a question with a note as Obsidian Copilot sends it."""
    note = f"<title>log</title>\n<path>log.md</path>\n<content>\n{FILE}</content>"
    return f"{question}\n\n<note_context>\n{note}\n</note_context>"


def smart_composer(question: str) -> str:
    """Return a question with a file as Smart Composer sends it."""
    return f"```log.md\n{FILE}```\n\n\n{question}\n\n"


def pasted(question: str) -> str:
    """Return a question with a text pasted below it."""
    return f"{question}\n\n{FILE}"


FORMS = (open_webui, copilot, smart_composer, pasted)
IN_EACH_FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
IN_FORMS = pytest.mark.parametrize("form", sample(FORMS, open_webui, pasted), ids=lambda form: form.__name__)
"""The quick tests have a file that has a name and goes with the next message, and a text that has none and stays."""


async def asked(served: Served, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask for a stream and check the answer; return its chunks."""
    chunks = chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": list(messages), "stream": True}))
    assert text_of(chunks) == ANSWER
    return chunks


@IN_EACH_FORM
async def test_chat_goes_on_with_a_file_larger_than_the_window(tmp_path: Path, form: Callable[[str], str]) -> None:
    """Its beginning and end are read, the question word for word, the whole can be opened, and the person is told."""
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        first = {"role": "user", "content": form(QUESTION)}
        chunks = await asked(served, first)
        [told] = [text for kind, text in notices_of(chunks) if kind == "results cut"]
        name = "The pasted text" if form is pasted else "log.md"
        assert told.startswith(f"{name} is too large to be shown whole: about ")
        [turn] = turns_of(studio)
        sent = content_of(turn.body["messages"][-1])
        assert all(part in sent for part in (QUESTION, LINES[0], LINES[-1].strip(), "characters of "))
        assert_fits(turn)
        ref = sent.partition("/v1/tool_outputs/")[2].partition("]")[0]
        async with served.http.get(f"{served.url}/v1/tool_outputs/{ref}") as response:
            assert LINES[600] in await response.text()
        bare = {"role": "user", "content": QUESTION} if form is open_webui else first
        said = {"role": "assistant", "content": ANSWER}
        await asked(served, bare, said, {"role": "user", "content": "And the first one?"})
        assert turns_of(studio)[-1].body["messages"][0] == turn.body["messages"][0]


@IN_FORMS
async def test_file_stays_with_each_further_message(tmp_path: Path, form: Callable[[str], str]) -> None:
    """A client that puts the file around every question, as Open WebUI does, gets an answer each time."""
    messages: list[dict[str, Any]] = []
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        for number in range(4):
            question = f"{QUESTION} It is question {number}."
            await asked(served, *messages, {"role": "user", "content": form(question)})
            kept = question if form is open_webui else form(question)
            messages += [{"role": "user", "content": kept}, {"role": "assistant", "content": ANSWER}]
            assert question in content_of(turns_of(studio)[-1].body["messages"][-1])
        for chat in studio.chats:
            assert_fits(chat)


@IN_FORMS
async def test_the_same_file_again_refers_to_the_first(tmp_path: Path, form: Callable[[str], str]) -> None:
    """Nobody is asked to prune for it, also not while the person reads, and no earlier byte changes."""
    messages: list[dict[str, Any]] = []
    async with small_window(tmp_path, window=WINDOW, timing=Timing(quiet=0.02)) as (served, studio):
        background = served.app[SHARED].background
        for question in (QUESTION, "And the first one?", "Never mind.", "Thanks."):
            await asked(served, *messages, {"role": "user", "content": form(question)})
            await eventually(lambda: not background._jobs, "the background never ends")
            kept = question if form is open_webui else form(question)
            messages += [{"role": "user", "content": kept}, {"role": "assistant", "content": ANSWER}]
        assert not orders_of(studio)
        sent = [turn.body["messages"] for turn in turns_of(studio) if turn.body["max_tokens"] != 1]
        for before, after in pairwise(sent):
            assert after[: len(before)] == before, "what the engine has read has changed"
        for repeated in (content_of(message) for message in sent[-1][2::2]):
            assert "the same text has come in another message" in repeated
            assert len(repeated) < 1000
        first = content_of(sent[0][0])
        assert LINES[0] in first
        refs = [content_of(message).partition("/v1/tool_outputs/")[2].partition("]")[0] for message in sent[-1][::2]]
        assert refs == refs[:1] * 4


@pytest.mark.slow
@IN_FORMS
async def test_the_last_of_several_has_the_file_after_a_compaction(tmp_path: Path, form: Callable[[str], str]) -> None:
    """Where the first message with a file is summarised, the one that asks now has as much of it as that one had."""
    messages: list[dict[str, Any]] = []
    async with small_window(tmp_path, lambda _: "It left at noon. " * 40, window=WINDOW) as (served, studio):
        for number in range(8):
            question = f"{QUESTION} It is question {number}."
            body = {"model": RAW_MODEL, "messages": [*messages, {"role": "user", "content": form(question)}]}
            status, answer = await ask_whole(served, body)
            assert status == 200
            kept = question if form is open_webui else form(question)
            messages += [{"role": "user", "content": kept}, answer["choices"][0]["message"]]
        assert orders_of(studio)
        assert len(orders_of(studio)) < len(turns_of(studio)) / 2
        for turn in turns_of(studio):
            assert_fits(turn)
            assert sum(LINES[0] in content_of(message) for message in turn.body["messages"]) >= 1, "the file is gone"


async def test_file_that_fits_stays_whole(tmp_path: Path) -> None:
    """Nothing is changed below the trigger."""
    text = f'{TASK}<context>\n<source id="1" name="log.md">{"".join(LINES[:60])}</source>\n</context>\n\n{QUESTION}'
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        await asked(served, {"role": "user", "content": text})
        assert content_of(turns_of(studio)[-1].body["messages"][-1]) == text


async def test_a_file_keeps_its_own_letters(tmp_path: Path) -> None:
    """A name is told as it was given, also where it begins or ends a sentence."""
    source = f'<source id="1" name="Notes16k.txt">{"".join(LINES)}</source>'
    async with small_window(tmp_path, window=WINDOW) as (served, _):
        chunks = await asked(
            served, {"role": "user", "content": f"{TASK}<context>\n{source}\n</context>\n\n{QUESTION}"}
        )
        told = [text for _, text in notices_of(chunks) if "16k" in text]
        assert told
        assert all("Notes16k.txt" in text for text in told)


async def test_many_small_files_leave_room_for_the_question(tmp_path: Path) -> None:
    """Sixty passages are shortened to notes that are shorter than they are."""
    sources = (f'<source id="{n}" name="f{n}.md">{"".join(LINES[20 * n : 20 * n + 25])}</source>\n' for n in range(60))
    text = f"{TASK}<context>\n{''.join(sources)}</context>\n\n{QUESTION}"
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        await asked(served, {"role": "user", "content": text})
        [turn] = turns_of(studio)
        assert_fits(turn)
        assert content_of(turn.body["messages"][-1]).endswith(QUESTION)


@IN_FORMS
async def test_compaction_in_a_loop_of_client_tools_is_used_again(tmp_path: Path, form: Callable[[str], str]) -> None:
    """The file has the same bytes at each step, a large result among them; the pruning agent is not asked at each.

    Where lines in place of old results cost less than a summary, it is not asked at all.
    """
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": form(QUESTION)}]
    orders: list[int] = []
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        for number in range(7):
            status, _ = await ask_whole(served, {"model": RAW_MODEL, "messages": messages, "tools": [tool]})
            assert status == 200
            orders.append(len(orders_of(studio)))
            call = {"id": f"call0000{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            result = "".join(LINES[number * 30 : number * 30 + (300 if number == 5 else 30)])
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": result},
            ]
        assert orders[-1] <= 3
        assert len(json.dumps(turns_of(studio)[-1].body["messages"])) < len(json.dumps(messages)), "no room was made"
        first, *later = (next(m for m in turn.body["messages"] if m["role"] == "user") for turn in turns_of(studio))
        assert QUESTION in content_of(first)
        assert all(message == first for message in later)


@pytest.mark.parametrize("window", [WINDOW, WINDOW // 2], ids=["same window", "half of it"])
async def test_whole_file_outlives_the_server(tmp_path: Path, window: int) -> None:
    """After a restart the prompt has the same bytes; in a smaller window the whole is shortened, not what is left."""
    first = {"role": "user", "content": copilot(QUESTION)}
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        await asked(served, first)
        [before] = turns_of(studio)
    async with small_window(tmp_path, window=window) as (served, studio):
        await asked(served, first)
        [turn] = turns_of(studio)
        assert_fits(turn)
        sent = content_of(turn.body["messages"][-1])
        assert (turn.body["messages"] == before.body["messages"]) == (window == WINDOW)
        assert sent.count("/v1/tool_outputs/") == 1
        ref = sent.partition("/v1/tool_outputs/")[2].partition("]")[0]
        async with served.http.get(f"{served.url}/v1/tool_outputs/{ref}") as response:
            assert LINES[600] in await response.text()
