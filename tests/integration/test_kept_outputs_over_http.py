"""`/v1/tool_outputs/{ref}`: what tools returned, as people open it."""

import asyncio
import re
import sqlite3
from pathlib import Path

import aiohttp
import pytest
from agent_teams import results_of
from chatting import chat_body, elbowroom_with_studio, stream_bytes
from own_tools import own_tool
from serving import Served

from elbowroom.agents.tools.tool import Media, ToolResult
from elbowroom.demo import Script, ToolCall
from elbowroom.server.state import SHARED

PICTURE = b"\x89PNG\r\n\x1a\n\x00\xff"


@own_tool
async def look() -> ToolResult:
    """Take a picture."""
    return ToolResult("Taken.", media=(Media("image/png", PICTURE),))


async def opened(served: Served, ref: str, **headers: str) -> tuple[int, str, bytes]:
    """Open an output; return status, content type and body."""
    async with served.http.get(f"{served.url}/v1/tool_outputs/{ref}", headers=headers) as response:
        return response.status, response.headers["Content-Type"], await response.read()


async def test_an_image_of_a_tool_can_be_opened(tmp_path: Path) -> None:
    """The model is told of the image and where it is, reads that again by its reference, and the user can open it."""
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [look]) as (served, studio):
        studio.enqueue(Script(ToolCall("look", {})))
        studio.enqueue(Script("Done."))
        await stream_bytes(served, chat_body())
        told = results_of(studio.chats[-1].body)[0]
        found = re.search(r"is kept whole; ref=(\w+); .*: (/v1/tool_outputs/\w+)\]", told)
        assert found is not None, told
        ref, path = found.groups()
        assert path.endswith(ref)
        assert await opened(served, ref) == (200, "image/png", PICTURE)
        studio.enqueue(Script(ToolCall("tool_output_cache", {"ref_id": ref})), "Done.")
        await stream_bytes(served, chat_body("Look again."))
        assert results_of(studio.chats[-1].body)[-1] == found[0].join(["[image/png, 10 bytes, ", ""])


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/x-odd", "broken\r\nX-Evil: 1"])
async def test_what_may_hold_scripts_is_saved_as_a_file(tmp_path: Path, kind: str) -> None:
    """A tool cannot have a page of its own shown at this address."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        ref = await served.app[SHARED].store.tool_outputs.keep_media("", "web", kind, b"<script>alert(1)</script>")
        async with served.http.get(f"{served.url}/v1/tool_outputs/{ref.id}") as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert response.headers["Content-Disposition"].startswith("attachment")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "sandbox" in response.headers["Content-Security-Policy"]
            assert await response.read() == b"<script>alert(1)</script>"


async def test_text_comes_byte_for_byte(tmp_path: Path) -> None:
    """A text of many blocks is sent whole, line ends and lone surrogates as they are."""
    text = "a\r\n\ud800\0ü" + "line\n" * 50_000
    async with elbowroom_with_studio(tmp_path) as (served, _):
        ref = await served.app[SHARED].store.tool_outputs.keep("", "shell", text)
        status, kind, body = await opened(served, ref.id)
        assert (status, kind) == (200, "text/plain; charset=utf-8")
        assert body == text.encode("utf-8", "surrogatepass")


@pytest.mark.threat("other people's conversations", "outputs neither")
async def test_outputs_of_others_are_not_there(tmp_path: Path) -> None:
    """Not even with the reference in hand; nor is one that never was, or anything for a caller without name."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        ref = await served.app[SHARED].store.tool_outputs.keep("ada", "shell", "secret")
        assert (await opened(served, ref.id))[0] == 404
        assert (await opened(served, ref.id, **{"X-Elbowroom-User": "ada"}))[2] == b"secret"
        assert (await opened(served, ref.id, **{"X-Elbowroom-User": "bob"}))[0] == 404
        assert (await opened(served, "abcdefghijkm", **{"X-Elbowroom-User": "ada"}))[0] == 404
        assert (await opened(served, ref.id))[0] == 403


async def test_a_text_that_cannot_be_read_to_its_end(tmp_path: Path) -> None:
    """The connection is closed where the text breaks off: nobody waits for the rest, or takes it for the whole."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        ref = await served.app[SHARED].store.tool_outputs.keep("", "shell", "line\n" * 50_000)
        with sqlite3.connect(tmp_path / "elbowroom.db") as database:
            database.execute("DELETE FROM tool_output_chunks WHERE line > 1")
        database.close()
        async with asyncio.timeout(20):
            with pytest.raises(aiohttp.ClientPayloadError):
                await opened(served, ref.id)
            assert (await opened(served, "abcdefghijkm"))[0] == 404
