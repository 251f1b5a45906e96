"""What elbowroom says of a lost cache is what the engine says that it has read, for every reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from engine_as_lmstudio import engine_as_lmstudio
from long_conversations import conversation
from prefix_reuse import readings_of
from serving import Served, serve, settings_for

from elbowroom.agents.turn import sending
from elbowroom.tokens.files.loading import load_model

if TYPE_CHECKING:
    from pathlib import Path

    from llama_server import LlamaServer

Message = dict[str, Any]
NAME: Final = "talk-1"
SAME_WORDS: Final[dict[str, Any]] = {"max_tokens": 12, "temperature": 0, "seed": 7, "model": "lmstudio/tiny"}
BELL: Final = {"type": "function", "function": {"name": "ring_bell", "parameters": {"type": "object"}}}
END_OF_PROMPT: Final = 8
"""Tokens: how an answer is opened, which a count of the beginning of a prompt has at its end."""


def talk_of(engine: LlamaServer) -> list[Message]:
    """Return a history that ends with a question."""
    talk = conversation("plain", 6, engine.options.context_length, load_model(engine.model).text.tokenizer.count)
    messages: list[Message] = [{"role": "system", "content": talk.system}]
    for exchange in talk.exchanges:
        messages += [{"role": "user", "content": exchange.user}, {"role": "assistant", "content": "So it is noted."}]
    return messages[:-1]


async def ask(served: Served, messages: list[Message], name: str = NAME, **fields: Any) -> None:
    """Ask in the conversation with this name."""
    body = {**SAME_WORDS, "messages": messages, **fields}
    async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": name}) as response:
        assert response.status == 200, await response.text()
        await response.read()


REASONS: Final = ("system_changed", "tools_changed", "messages_changed", "other_request", "engine_forgot")


async def change(served: Served, engine: LlamaServer, reason: str, then: list[Message]) -> dict[str, Any]:
    """Let happen what is the reason; return further fields of the next request."""
    match reason:
        case "system_changed":
            then[0] = {"role": "system", "content": "Today is another day."}
        case "messages_changed":
            then[5] = {"role": "user", "content": "Never mind."}
        case "tools_changed":
            return {"tools": [BELL]}
        case "other_request":
            await ask(served, [{"role": "user", "content": "Does the tram run today?"}], "talk-2")
        case "engine_forgot":
            status, _ = await engine.post("/completion", {"prompt": "!", "n_predict": 1})
            assert status == 200
        case _:
            pass
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "is_told"),
    [
        *((reason, True) for reason in ("", *REASONS)),
        *((reason, False) for reason in ("", "system_changed", "tools_changed", "engine_forgot")),
        *(pytest.param(reason, False, marks=pytest.mark.long) for reason in ("messages_changed", "other_request")),
    ],
)
async def test_a_loss_is_what_the_engine_reads_again(
    tmp_path: Path, engine: LlamaServer, monkeypatch: pytest.MonkeyPatch, reason: str, is_told: bool
) -> None:
    """The reason is right, and the tokens are those that the engine had to read again by its own report.

    Where that report does not reach elbowroom they are so, too, but for the end of a prompt, and tools are taken to
    stand before all else; what the engine has forgotten by itself is not seen then.
    """
    if not is_told:
        monkeypatch.setattr(sending, "cached_of", lambda *_: None)
    first = talk_of(engine)
    then = [*first, {"role": "assistant", "content": "It is."}, {"role": "user", "content": "And what came then?"}]
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    async with engine_as_lmstudio(engine) as upstream:
        async with serve(tmp_path, settings_for(upstream.base_url, provider=files)) as served:
            await ask(served, first)
            fields = await change(served, engine, reason, then)
            await ask(served, then, **fields)
            url = f"{served.url}/v1/conversations/{NAME}/messages?limit=200&branch=all"
            async with served.http.get(url) as response:
                kept = (await response.json())["data"]
        before, *_, now = readings_of(upstream.requests)
    losses = [row["cache_lost"] for row in kept if row["cache_lost"] is not None]
    if not reason or (reason == "engine_forgot" and not is_told):
        assert losses == []
        return
    [lost] = losses
    assert (lost["reason"], lost["is_measured"]) == (reason, is_told)
    read_again = min(before.prompt, now.prompt) - now.cached
    if reason == "tools_changed" and not is_told:
        assert lost["tokens"] >= read_again  # this template has the tools after the system prompt
    else:
        assert lost["tokens"] == pytest.approx(read_again, abs=0 if is_told else END_OF_PROMPT)
    assert 0 < lost["seconds"] < 60
    assert lost["at"] == (6 if reason == "messages_changed" else None)
