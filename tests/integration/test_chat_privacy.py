"""Nothing phones home: not with an OpenAI key in the environment, not through a proxy, not at exit."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
WATCH = """
    import os, sys

    LOOPBACK = {"127.0.0.1", "localhost", "::1", None, ""}

    def watch(event, arguments):
        if event in ("socket.getaddrinfo", "socket.gethostbyname"):
            host = arguments[0]
        elif event in ("socket.connect", "socket.sendto"):
            host = arguments[1][0] if isinstance(arguments[1], tuple) else None
        else:
            return
        host = host.decode() if isinstance(host, bytes) else host
        if host not in LOOPBACK:
            with open(os.environ["WATCHED"], "a") as log:
                log.write(f"{event} {host}\\n")
            raise PermissionError(f"{host} is not on this machine")

    sys.addaudithook(watch)
"""
TOOL_RUN = """
    import asyncio, json
    from pathlib import Path
    from chatting import AGENT, MODEL, chat_body, elbowroom_with_studio, stream_bytes
    from elbowroom.demo import Script, ToolCall
    from own_tools import own_tool

    @own_tool
    async def secret(name: str) -> str:
        return f"the secret of {name}"

    HELPER = f'agent_tools = ["helper"]\\n[[agents]]\\nid = "helper"\\nmodel = "{MODEL}"\\n'

    async def main():
        toolbox = lambda target: [secret]
        async with elbowroom_with_studio(Path(sys.argv[1]), agents=AGENT + HELPER, toolbox=toolbox) as (served, studio):
            calls = ToolCall("secret", {"name": "Ada"}), ToolCall("ask_helper", {"request": "private"})
            studio.enqueue(Script(*calls), "Helped.", "Done.", "Raw.")
            await stream_bytes(served, chat_body())
            await stream_bytes(served, chat_body(model="lmstudio/qwen2.5-7b-instruct"))
            print(json.dumps([{"headers": dict(chat.headers), "body": chat.body} for chat in studio.chats]))

    asyncio.run(main())
"""
SDK_BY_ITSELF = """
    import agents
    with agents.trace("a run"):
        pass
"""


def run_watched(folder: Path, *parts: str) -> tuple[Any, str]:
    """Run a script in a process of its own; return its output, and what it looked for outside this machine."""
    watched = folder / "watched.txt"
    watched.touch()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    environ |= {
        "WATCHED": str(watched),
        "PYTHONPATH": str(SUPPORT),
        "OPENAI_API_KEY": "sk-fake-key",
        "OPENAI_ORG_ID": "org-fake",
        "OPENAI_PROJECT_ID": "proj-fake",
        "OPENAI_BASE_URL": "http://openai.invalid/v1",
    }
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        environ[name] = environ[name.lower()] = "http://proxy.invalid:3128"
    environ.pop("NO_PROXY", None)
    environ.pop("no_proxy", None)
    script = "".join(textwrap.dedent(part) for part in parts)
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None, watched.read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], str]:
    """Return what the upstream saw of a run with tools, and what was looked for outside."""
    return run_watched(tmp_path_factory.mktemp("run"), WATCH, TOOL_RUN)


@pytest.mark.slow
def test_a_run_with_tools_stays_on_this_machine(run: tuple[list[Any], str]) -> None:
    """With a key, an address of OpenAI's and proxies in the environment, a run with tools reaches loopback only."""
    chats, outside = run
    assert outside == ""
    assert len(chats) == 4
    assert "the secret of Ada" in json.dumps(chats[2]["body"])


@pytest.mark.slow
def test_nothing_of_the_environment_is_sent_along(run: tuple[list[Any], str]) -> None:
    """The upstream sees no key, organisation or project of the environment, and no client library's headers."""
    for chat in run[0]:
        names = {name.lower() for name in chat["headers"]}
        assert names <= {"host", "content-type", "content-length", "accept", "accept-encoding", "user-agent"}
        assert "fake" not in json.dumps(chat)


@pytest.mark.long
def test_the_watch_sees_what_the_sdk_does_by_itself(tmp_path: Path) -> None:
    """The same watch catches the SDK where its tracing is left on, so that its silence above means something."""
    _, outside = run_watched(tmp_path, WATCH, SDK_BY_ITSELF)
    assert "proxy.invalid" in outside or "openai" in outside
