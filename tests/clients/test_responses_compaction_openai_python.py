"""The `openai` Python client and compactions that it keeps: every event and answer is one of its types."""

from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseCompactionCompactingEvent, ResponseCompactionItem
from openai_client import client_of
from request_checks import assert_fits
from small_window import ANSWER, QUESTION, history, small_window, turns_of

FOLLOW: Any = {"role": "user", "content": QUESTION}


@pytest.mark.slow
async def test_stream_with_a_compaction(tmp_path: Path) -> None:
    """`responses.stream` reads a compaction item before the message, and its output is the next input as it is."""
    async with small_window(tmp_path) as (served, studio), client_of(served) as client:
        asked: list[Any] = history(12)
        managed: Any = [{"type": "compaction", "compact_threshold": 900}]
        async with client.responses.stream(model="writer", input=asked, context_management=managed) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert kinds.index("response.compaction.compacting") < kinds.index("response.output_text.delta")
        compaction, message = final.output
        assert isinstance(compaction, ResponseCompactionItem)
        assert (message.type, final.output_text) == ("message", ANSWER)
        second = await client.responses.create(
            model="writer",
            input=[asked[0], *[item.to_dict() for item in final.output], FOLLOW],  # type: ignore[list-item]
        )
        assert second.output_text == ANSWER
        assert_fits(turns_of(studio)[-1])


@pytest.mark.slow
async def test_order_and_route(tmp_path: Path) -> None:
    """A `compaction_trigger` gives one item as a stream, `responses.compact` the whole window; both go on."""
    async with small_window(tmp_path) as (served, studio), client_of(served) as client:
        asked: list[Any] = [*history(6), {"type": "compaction_trigger"}]
        async with client.responses.stream(model="writer", input=asked, store=False) as stream:
            told = [event async for event in stream if isinstance(event, ResponseCompactionCompactingEvent)]
            final = await stream.get_final_response()
        (item,) = final.output
        assert isinstance(item, ResponseCompactionItem)
        assert {event.item_id for event in told} == {item.id}
        assert final.usage is not None
        goes_on: Any = [item.to_dict(), FOLLOW]
        assert (await client.responses.create(model="writer", input=goes_on)).output_text == ANSWER
        known, unknown = asked[:-1], [asked[0], *asked[3:-1]]
        for given in (known, unknown):
            window = await client.responses.compact(model="writer", input=given, instructions="You keep the log.")
            assert (window.object, window.output[-1].type) == ("response.compaction", "compaction")
            assert given is known or window.usage.total_tokens > 0
            goes_on = [*[item.to_dict(warnings=False) for item in window.output], FOLLOW]
            assert (await client.responses.create(model="writer", input=goes_on)).output_text == ANSWER
        for turn in turns_of(studio):
            assert_fits(turn)
