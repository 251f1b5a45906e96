"""Open WebUI's recorded requests find again what was kept for the turn before."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from ledger_chats import chain_of, longest, restored, spoken
from random_histories import Json

from elbowroom.context.canonical import question_in
from elbowroom.context.ledger import Entry, archive_of

BESIDE_THE_REPOSITORY: Final = Path(__file__).parents[3] / "shared" / "data"
RECORDING: Final = Path(os.environ.get("ELBOWROOM_TEST_DATA", BESIDE_THE_REPOSITORY)) / "openwebui" / "requests.json"

pytestmark = pytest.mark.skipif(not RECORDING.exists(), reason="the recorded requests are not part of the repository")


def recorded() -> list[Json]:
    """Return the recorded requests that have messages; none where there is no recording."""
    requests = json.loads(RECORDING.read_text(encoding="utf-8")) if RECORDING.exists() else []
    return [request for request in requests if "messages" in request["body"]]


def messages_of(sample: str) -> list[Json]:
    """Return the messages of one recorded request."""
    [messages] = [request["body"]["messages"] for request in recorded() if request["sample"] == sample]
    return list(messages)


def without(key: str, messages: list[Json]) -> list[Json]:
    """Return messages as they are where this key does not come back."""
    return [{name: value for name, value in message.items() if name != key} for message in messages]


def answer(text: str, **more: Any) -> Json:
    """Return an answer as elbowroom gave it."""
    return {"role": "assistant", "content": text, **more}


def test_every_request_has_a_chain() -> None:
    """Each recorded history is told from all others, and each of its messages is archived."""
    chains = [(request, chain_of(request["body"]["messages"])) for request in recorded()]
    assert len(chains) == 19
    for request, chain in chains:
        messages = request["body"]["messages"]
        assert len(chain.keys) == len(spoken(messages)) > 0
        assert [node.message for node in archive_of(chain, messages)] == messages
    assert len({chain.keys[-1] for _, chain in chains}) == 19


def test_next_turn_with_opaque_reasoning() -> None:
    """`reasoning_details` come back on the answer, and the answer is the one that was given without them."""
    messages = messages_of("next turn with reasoning_details")
    given = answer("The answer with opaque reasoning_details.\n", reasoning_content="Hm.")
    assert chain_of(messages).keys[1] == chain_of(messages[:1]).followed_by(given)
    assert chain_of(messages) == chain_of(without("reasoning_details", messages))


def test_tool_loop() -> None:
    """The calls of an answer come back with its text as it was, and so do the results behind them."""
    question, called, result = messages = messages_of("tool loop, default provider")
    [call] = called["tool_calls"]
    own = {**call, "id": "abcDEF123", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    given = answer("Let me look that up.", tool_calls=[own], reasoning_content="Hm.")
    assert chain_of(messages).keys[1] == chain_of([question]).followed_by(given)
    assert chain_of(messages) == chain_of([question, given, {**result, "tool_call_id": "abcDEF123"}])


def test_continued_answer_comes_back_joined() -> None:
    """An answer that was continued comes back as one message, and its key is the one kept when it was given."""
    begun = messages_of("continue, provider=llama.cpp")
    later = messages_of("tool loop, provider=llama.cpp (reasoning_content resent)")
    joined, old = later[3]["content"], begun[3]["content"]
    assert joined.startswith(old)
    kept = chain_of(begun).continued_by(begun, answer(joined.removeprefix(old) + "\n", reasoning_content="Hm."))
    chain = chain_of(later)
    assert kept == chain.keys[3]
    assert chain_of(begun).keys[:3] == chain.keys[:3]
    assert chain == chain_of(without("reasoning_content", later))


def test_entry_of_an_earlier_turn_is_found_and_put_in_place() -> None:
    """What was compacted before the answer was continued stands in its place three turns later."""
    begun = messages_of("continue, provider=llama.cpp")
    later = messages_of("tool loop, provider=llama.cpp (reasoning_content resent)")
    summary = {"role": "user", "content": "A summary."}
    entries = [
        Entry(key, (summary,), window=4096, before=4000, after=900, rung="plan", created=0.0)
        for key in chain_of(begun).keys
    ]
    found = longest(chain_of(later), entries)
    assert found == (2, entries[2])
    assert restored(later, *found) == [summary, *later[3:]]


def test_date_in_the_system_prompt() -> None:
    """A system prompt with the time in it is another on every turn; the conversation is the same, the time is new."""
    system, question = messages_of("system prompt with {{CURRENT_DATETIME}}")
    assert "2026-11-20 10:59:44" in system["content"]
    later = [{**system, "content": system["content"].replace("10:59:44", "11:07:02")}, question, answer("Hi.")]
    chain = chain_of(later)
    assert chain.keys[0] == chain_of([system, question]).keys[0]
    entry = Entry(chain.keys[0], (), window=4096, before=4000, after=900, rung="plan", created=0.0)
    assert restored(later, 0, entry) == [later[0], later[2]]


def test_its_own_compaction_begins_a_chain_anew() -> None:
    """Its summary is a system message: it goes to the model as it is, and the chain begins with what was kept."""
    summary, *kept = messages = messages_of("chat after own context compaction")
    assert summary["content"].startswith("[CONVERSATION SUMMARY]\n")
    chain = chain_of(messages)
    assert chain.ends == (2, 3, 4)
    assert chain.keys == chain_of(kept).keys
    entry = Entry(chain.keys[-1], (), window=4096, before=4000, after=900, rung="plan", created=0.0)
    assert restored(messages, len(kept) - 1, entry) == [summary]


def test_image_counts_by_its_bytes() -> None:
    """The same picture, encoded with line breaks or as another address, is the same; another picture is not."""
    [message] = messages_of("chat with an image")
    *texts, picture = message["content"]
    url = picture["image_url"]["url"]
    head, _, data = url.partition(",")
    data = data.partition("…")[0]
    data = data[: len(data) // 4 * 4]
    pixels = base64.b64decode(data)

    def with_image(address: str) -> tuple[str, ...]:
        return chain_of([{"role": "user", "content": [*texts, {"type": "image_url", "image_url": address}]}]).keys

    kept = with_image(f"{head},{data}")
    assert with_image(f"{head},{base64.encodebytes(pixels).decode()}") == kept
    assert with_image(f"{head},{base64.b64encode(pixels[:-1] + b'!').decode()}") != kept


def test_file_moves_on_with_the_last_question() -> None:
    """A question with a file is known on the next turn, when only the question comes back and the file has moved."""
    [message] = messages_of("chat with a file attached (RAG template in the last user message)")
    heading = message["content"].partition("…")[0]
    assert heading.startswith("### Task:\nRespond to the user query")
    template = f'{heading}\n\n<context>\n<source id="1" name="notes.txt">Boats.</source>\n</context>\n\n'
    question = '<attached_files>\n<file type="file" name="notes.txt"/>\n</attached_files>\n\nWhat floats?'
    first = [{"role": "user", "content": template + question}]
    given = answer("Boats do.")
    asked_again = {"role": "user", "content": template + "And what sinks?"}
    assert question_in(first[0]["content"]) == question
    later = chain_of([{"role": "user", "content": question}, given, asked_again])
    assert later.keys[:2] == (chain_of(first).keys[0], chain_of(first).followed_by(given))
    assert later.keys[2] == later_question(question, given)


def later_question(question: str, given: Json) -> str:
    """Return the key of the second question, once another has been asked behind it."""
    history = [{"role": "user", "content": question}, given, {"role": "user", "content": "And what sinks?"}]
    return chain_of([*history, answer("Stones."), history[0]]).keys[2]


def test_edited_first_question_is_another_conversation() -> None:
    """The same chat id holds several branches; they share nothing from the edited question on."""
    edited = messages_of("continue, default provider")
    assert edited[0]["content"].startswith("Q1-EDITED")
    original = [{**edited[0], "content": edited[0]["content"].replace("-EDITED", "")}, *edited[1:]]
    assert not set(chain_of(edited).keys) & set(chain_of(original).keys)
    fork = [*edited[:2], {"role": "user", "content": "Q2-on-another-branch"}]
    assert chain_of(fork).keys[:2] == chain_of(edited).keys[:2]
    assert chain_of(fork).keys[2] != chain_of(edited).keys[2]
