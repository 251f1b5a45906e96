"""The `openai` Python client's conversations, with their items, over the conversations that the page shows."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.conversations import Message
from openai_client import Trio, client_of, lasting, trio
from small_window import ANSWER, history, small_window

__all__ = ["lasting", "trio"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.slow
async def test_conversation_from_its_beginning_to_its_end(trio: Trio) -> None:
    """Create, retrieve, update, add, list page by page, answer, delete an item, delete."""
    client, studio, _ = trio
    studio.enqueue("Two.")
    hello: Any = {"type": "message", "role": "user", "content": "One."}
    made = await client.conversations.create(items=[hello], metadata={"topic": "numbers"})
    assert (made.object, made.metadata) == ("conversation", {"topic": "numbers"})
    assert made.created_at == (await client.conversations.retrieve(made.id)).created_at
    assert (await client.conversations.update(made.id, metadata={"a": "b"})).metadata == {"a": "b"}
    more: Any = {**hello, "content": "More."}
    added = await client.conversations.items.create(made.id, items=[more])
    assert isinstance(added.data[0], Message)
    assert await client.conversations.items.retrieve(added.data[0].id, conversation_id=made.id) == added.data[0]
    answer = await client.responses.create(model="writer", input="Which is next?", conversation=made.id)
    assert answer.conversation is not None
    assert answer.conversation.id == made.id
    texts = []
    async for item in client.conversations.items.list(made.id, order="asc", limit=2):
        assert isinstance(item, Message)
        texts += [part.text for part in item.content if part.type in ("input_text", "output_text")]
    assert texts == ["One.", "More.", "Which is next?", "Two."]
    left = await client.conversations.items.delete(str(answer.output[0].id), conversation_id=made.id)
    assert left.metadata == {"a": "b"}
    gone = await client.conversations.delete(made.id)
    assert (gone.deleted, gone.object) == (True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(made.id)


@pytest.mark.slow
async def test_stream_in_a_conversation_that_is_compacted(tmp_path: Path) -> None:
    """A streamed answer in a long conversation brings the compaction as an item, and the items of it all stay."""
    async with small_window(tmp_path) as (served, _), client_of(served) as client:
        asked: list[Any] = history(9)
        made = await client.conversations.create(items=asked[:-1])
        managed: Any = [{"type": "compaction"}]
        async with client.responses.stream(
            model="writer", input=asked[-1:], conversation={"id": made.id}, context_management=managed
        ) as stream:
            async for _event in stream:
                pass
            final = await stream.get_final_response()
        assert [item.type for item in final.output] == ["compaction", "message"]
        assert final.output_text == ANSWER
        items = await client.conversations.items.list(made.id, limit=100)
        assert len(items.data) == len(asked) + 1
