"""What a person sees of a conversation has happened in it: its title, its window, its compactions, its images."""

from pathlib import Path
from typing import Any, Literal

from chatting import MODEL, RAW_MODEL, elbowroom_with_studio, stream_bytes
from serving import Served
from small_window import history, small_window

from elbowroom.demo import SimulatedModel

FILE_CHAT = (
    '### Task:\nRespond to the user query using the provided context.\n\n<context>\n<source id="1">Frost.</source>\n'
    "</context>\n\nWhen do I plant the beans?"
)
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


async def shown(served: Served, name: str) -> dict[str, Any]:
    """Return a conversation as it is shown."""
    async with served.http.get(f"{served.url}/v1/conversations/{name}") as response:
        found: dict[str, Any] = await response.json()
        assert response.status == 200, found
        return found


async def test_the_title_of_a_chat_about_a_file(tmp_path: Path) -> None:
    """It is the person's question, not the order that Open WebUI puts around a file."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        body = {"model": "writer", "messages": [{"role": "user", "content": FILE_CHAT}]}
        await stream_bytes(served, body, **{"X-Conversation-Id": "beans"})
        assert (await shown(served, "beans"))["title"] == "When do I plant the beans?"


async def test_the_window_after_an_error(tmp_path: Path) -> None:
    """A chat whose only request did not fit shows how far it was over its window."""
    async with small_window(tmp_path, compaction="enabled = false") as (served, _):
        body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Ferry. " * 3000}]}
        async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": "long"}) as response:
            assert response.status == 400
        context = (await shown(served, "long"))["context"]
        assert context["window"] == 1000
        assert context["tokens"] > 1000


async def test_a_compaction_that_is_reused(tmp_path: Path) -> None:
    """A copy of a chat begins with the compaction of the first: it is told there once, and not twice in the first."""
    async with small_window(tmp_path) as (served, _):
        messages = history(12)
        for name, more in (("first", 0), ("first", 1), ("copy", 1), ("copy", 1)):
            said = [{"role": "assistant", "content": "The ninth."}, {"role": "user", "content": "And then?"}] * more
            body = {"model": RAW_MODEL, "messages": [*messages, *said]}
            async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": name}) as response:
                assert response.status == 200
        first, copy = [(await shown(served, name))["compactions"] for name in ("first", "copy")]
        assert [each["rung"] for each in first] == ["plan"]
        assert [each["rung"] for each in copy] == ["reused"]
        assert [copy[0][key] for key in ("before", "after")] == [first[0][key] for key in ("before", "after")]


async def test_an_image_for_a_model_that_sees_none(tmp_path: Path) -> None:
    """The person is told what to do in one line; nothing is said where the model sees."""
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    asked = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}
    kinds: list[tuple[Literal["llm", "vlm"], int]] = [("llm", 1), ("vlm", 0)]
    for kind, told in kinds:
        model = SimulatedModel(MODEL, loaded_context_length=32_768, type=kind)
        (tmp_path / kind).mkdir()
        async with elbowroom_with_studio(tmp_path / kind, model=model) as (served, _):
            async with served.http.post(
                served.chat_url, json={"model": "writer", "messages": [asked], "stream": True}
            ) as response:
                assert (await response.text()).count("Choose a model with vision") == told
