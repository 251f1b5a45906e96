"""Tools of MCP servers: real ones, started as programs and reached over HTTP."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from mcp_sample import Sample, http_server, sample_on_http, stdio_server
from mcp_sample_server import HUGE, PIXEL
from waiting import until

from elbowroom.agents.tools.tool import Media
from elbowroom.errors import ElbowroomError

pytestmark = pytest.mark.asyncio(loop_scope="module")
BOTH = pytest.mark.parametrize("server", ["files", "web"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sample(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sample]:
    """Run one server of each kind; `hasty` is the one on HTTP with little time for a call, `old` speaks as of old."""
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "files").touch()
    async with sample_on_http(folder, "web") as (url, _):
        settings = [
            stdio_server("files", folder / "files", 'env = { GIVEN = "env:SOMETHING", ABSENT = "env:NOT_SET" }'),
            stdio_server("old", folder / "old", is_old=True),
            http_server("web", url),
            http_server("hasty", url, "timeout = 0.3"),
        ]
        sample = Sample.of(folder, "\n".join(settings), SOMETHING="a value")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OF_ELBOWROOM", "a secret")
            yield sample
        await sample.servers.aclose()


@pytest.mark.slow
@BOTH
async def test_tools_are_listed_and_called(sample: Sample, server: str) -> None:
    """A server's tools come in its order, with its descriptions; a call gives what the tool answers."""
    tools = await sample.tools(server)
    assert [tool.name for tool in tools][:4] == ["append", "change", "crash", "die_once"]
    echo = next(tool for tool in tools if tool.name == "echo")
    assert (echo.description, echo.source, echo.kind) == ("Does echo.", server, "read")
    assert (await sample.call(server, "echo", text="Zürich")).text == "Zürich"


@pytest.mark.slow
async def test_an_agent_has_the_tools_that_it_names_in_its_order(sample: Sample) -> None:
    """Single tools and whole servers come as the agent lists them, each tool once; unknown servers are left out."""
    tools = await sample.tools("web/pid", "files/echo", "web/echo", "web", "files/echo", "nobody", "nobody/echo")
    named = [(tool.source, tool.name) for tool in tools]
    assert named[:3] == [("web", "pid"), ("files", "echo"), ("web", "echo")]
    assert len(named) == len(set(named))
    assert [name for _, name in named[3:]] == [
        tool.name for tool in await sample.tools("web") if tool.name not in ("pid", "echo")
    ]


async def test_a_tool_that_is_not_there_is_told_once(sample: Sample, caplog: pytest.LogCaptureFixture) -> None:
    """An agent that names a tool which its server does not have goes without, and the log says so once."""
    for _ in range(3):
        assert await sample.tools("files/read_mind") == []
    assert [record.message for record in caplog.records if "read_mind" in record.message] == [
        "The MCP server 'files' has no tool 'read_mind', which an agent's mcp names."
    ]


async def test_kinds_come_from_what_the_server_declares(sample: Sample) -> None:
    """A tool that only reads says so, one that changes things too; where nothing is declared nothing is said."""
    kinds = {tool.name: tool.kind for tool in await sample.tools("files")}
    assert (kinds["pid"], kinds["append"], kinds["mixed"]) == ("read", "write", "other")


async def test_names_that_models_cannot_call_are_mapped(sample: Sample) -> None:
    """A tool named with dots, slashes or umlauts gets a callable name, and is called by its own."""
    (tool,) = await sample.tools("files/odd.name/ü")
    assert tool.name == "odd_name_"
    assert (await sample.call("files", "odd_name_", text="there")).text == "there"


async def test_schemas_come_without_references(sample: Sample) -> None:
    """What a schema refers to stands in its place."""
    (tool,) = await sample.tools("files/structured")
    assert tool.parameters == {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}}}


@BOTH
async def test_errors_are_told_to_the_model(sample: Sample, server: str) -> None:
    """A failure that the tool tells, one that the protocol tells, and a crash of the tool all become error results."""
    assert (await sample.call(server, "fail")).text == "the disk is full"
    assert (await sample.call(server, "refuse")).text == "the path is missing"
    for name in ("fail", "refuse", "crash"):
        result = await sample.call(server, name)
        assert result.is_error
        assert result.text


async def test_results_that_are_no_text_are_kept_whole(sample: Sample) -> None:
    """Images, sounds and blobs come byte for byte, each with a line of text; links and embedded texts are text."""
    result = await sample.call("files", "mixed")
    assert result.media == (
        Media("image/png", PIXEL),
        Media("audio/wav", b"\0\1\2"),
        Media("application/octet-stream", b"\0\1\2"),
    )
    assert result.text.splitlines() == [
        "Two pictures:",
        f"[image/png, {len(PIXEL)} bytes]",
        "[image/jpeg, not readable: it is not base64]",
        "[audio/wav, 3 bytes]",
        "[plan: file:///plan.md (the plan)]",
        "[note://1]",
        "A note.",
        "[blob://1]",
        "[application/octet-stream, 3 bytes]",
    ]


async def test_structured_results_without_text_are_json(sample: Sample) -> None:
    """A result that has only structured content is told as JSON; one that has nothing says so."""
    assert json.loads((await sample.call("files", "structured")).text) == {"temperature": 21.5, "city": "Zürich"}
    assert (await sample.call("files", "nothing")).text == "(The tool returned nothing.)"


@BOTH
async def test_huge_results_are_whole(sample: Sample, server: str) -> None:
    """Ten megabytes of text come through, every character of them."""
    assert (await sample.call(server, "huge")).text == "ä" * HUGE


@BOTH
async def test_calls_run_side_by_side(sample: Sample, server: str) -> None:
    """Twenty calls are under way at once: each of them waits for all the others."""
    (meet,) = await sample.tools(f"{server}/meet")
    results = await asyncio.gather(*(meet.call({"count": 20}) for _ in range(20)))
    assert len(results) == 20


async def test_a_slow_call_ends_in_words(sample: Sample) -> None:
    """A call that takes too long is cancelled at the server, and the connection stays usable."""
    before = sample.journal("web").count("slow cancelled")
    with pytest.raises(ElbowroomError) as raised:
        await sample.call("hasty", "slow", seconds=60)
    assert raised.value.message == "hasty did not answer within 0.3 seconds; the call was cancelled."
    await until(lambda: sample.journal("web").count("slow cancelled") == before + 1)
    assert (await sample.call("hasty", "echo", text="still here")).text == "still here"


@pytest.mark.parametrize("server", ["files", "web", "old"])
async def test_a_cancelled_run_cancels_its_call(sample: Sample, server: str) -> None:
    """Cancelling a call cancels it at the server, and nothing else: the same process answers the next one."""
    process = (await sample.call(server, "pid")).text
    begun = sample.journal(server).count("slow begun")
    cancelled = sample.journal(server).count("slow cancelled")
    call = asyncio.create_task(sample.call(server, "slow", seconds=60))
    await until(lambda: sample.journal(server).count("slow begun") == begun + 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: sample.journal(server).count("slow cancelled") == cancelled + 1)
    assert (await sample.call(server, "pid")).text == process


async def test_tools_are_asked_for_once(sample: Sample) -> None:
    """However many requests come, and calls are made, the server is asked for its tools once."""
    await sample.tools("old")
    before = sample.journal("old").count("list")
    await asyncio.gather(*(sample.tools("old") for _ in range(5)))
    await sample.call("old", "echo", text="a")
    assert before == 1
    assert sample.journal("old").count("list") == 1


@pytest.mark.parametrize("server", ["files", "web"])
async def test_a_change_of_the_tools_is_followed(sample: Sample, server: str) -> None:
    """A server that says that its tools have changed is asked for them again, and only then."""
    await _change_tools(sample, server)


async def test_a_change_of_the_tools_is_followed_as_of_old(sample: Sample) -> None:
    """So is one that speaks an older protocol, which tells everybody; it comes last, it lists again."""
    await _change_tools(sample, "old")


async def _change_tools(sample: Sample, server: str) -> None:
    await sample.call(server, "change")
    await sample.until_offered(server, "added")


async def test_programs_get_no_secrets_of_ours(sample: Sample) -> None:
    """A program has the variables of its settings and the usual few, and nothing else of elbowroom's own."""
    environment = json.loads((await sample.call("files", "environment")).text)
    assert environment["GIVEN"] == "a value"
    assert "ABSENT" not in environment
    assert os.environ["OF_ELBOWROOM"]
    assert "OF_ELBOWROOM" not in environment


@pytest.mark.slow
async def test_what_a_program_says_is_logged_at_debug_only(
    sample: Sample, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two megabytes on stderr block nothing and do not reach ours; the log has them at level debug, in pieces."""
    with caplog.at_level(logging.DEBUG, "elbowroom.agents.tools.mcp.link"):
        assert (await sample.call("files", "noise")).text == "done"
        await until(lambda: any(record.message.endswith("the end of the noise") for record in caplog.records))
    noise = [record for record in caplog.records if "xxx" in record.message]
    assert all(record.levelno == logging.DEBUG and len(record.message) < 5000 for record in noise)
    assert "xxx" not in capfd.readouterr().err
