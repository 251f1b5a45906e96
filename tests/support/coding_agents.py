"""Coding agents of other people, from npm: where they are installed, how they are set up, and one run of each."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chatting import MODEL
from client_libraries import LibraryUnavailableError
from command_line import environment

from elbowroom.connect.clients import CODEX
from elbowroom.connect.models import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCKED: Final = Path(__file__).parents[1] / "clients" / "agents"
INSTALL_SECONDS: Final = 600.0
OLDEST_NODE: Final = (22, 19)
PI_KEEPS_FREE: Final = 4096
NOWHERE: Final = "http://127.0.0.1:9"
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
UNPROXIED: Final = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client works: its home, the repository, the address of its server with no path, the window, the model.

    `is_managed` tells whether elbowroom is there, which compacts in the client's place.
    """

    home: Path
    folder: Path
    url: str
    window: int
    model: str = MODEL
    is_managed: bool = True

    @property
    def most_output(self) -> int:
        """Return how long an answer may be, in tokens."""
        return self.window // 8

    def write(self, path: str, text: str) -> None:
        """Write a file of the client's settings below its home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent: what it is called, how it is set up and started, and which lines of its output are errors."""

    name: str
    set_up: Callable[[Place], dict[str, str]]
    command: Callable[[Path, str], list[str]]
    is_error: Callable[[Body], bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its exit code, the errors that it showed, and all that it said."""

    code: int | None
    errors: list[Body]
    said: str


def set_up_opencode(place: Place) -> dict[str, str]:
    """Write the settings of opencode; return its variables.

    It would compact once a prompt and its answer have less than another answer left in `input`, else in `context`.
    """
    limit = {"context": place.window, "output": place.most_output}
    if place.is_managed:
        limit["input"] = int(Choice(place.url, "", place.model, place.window).filled("$widened"))
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "elbowroom",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
        "models": {place.model: {"name": place.model, "limit": limit, "tool_call": True}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"elbowroom/{place.model}",
        "small_model": f"elbowroom/{place.model}",
        "provider": {"elbowroom": provider},
        "enabled_providers": ["elbowroom"],
    }
    place.write(".config/opencode/opencode.json", json.dumps(settings))
    names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in names}


def run_opencode(home: Path, prompt: str) -> list[str]:
    """Return the command line of opencode."""
    [program] = home.glob("node_modules/opencode-*-baseline/bin/opencode*")
    return [str(program), "run", "--format", "json", "--auto", "--print-logs", "--log-level", "WARN", prompt]


def set_up_codex(place: Place) -> dict[str, str]:
    """Write the settings of Codex, those of `elbowroom connect` among them; return its variables.

    Where it is not managed, it is told the window itself.
    """
    [part] = CODEX.parts
    text = part.text if place.is_managed else part.text.replace("$widened", "$window")
    told = Choice(place.url, "none", f"lmstudio/{place.model}", place.window).filled(text)
    place.write(
        ".codex/config.toml",
        f"""
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
{told}

[analytics]
enabled = false
""",
    )
    return {}


def run_codex(home: Path, prompt: str) -> list[str]:
    """Return the command line of Codex."""
    return [
        node(),
        str(home / "node_modules/@openai/codex/bin/codex.js"),
        "exec",
        "--json",
        "--skip-git-repo-check",
        prompt,
    ]


def set_up_pi(place: Place) -> dict[str, str]:
    """Write the settings of pi; return its variables.

    It keeps 4,096 tokens of the window that it is told free, and shortens answers to what it believes is left.
    """
    told = place.window + PI_KEEPS_FREE + place.most_output if place.is_managed else place.window
    model = {"id": place.model, "contextWindow": told, "maxTokens": place.most_output}
    compaction = {"enabled": not place.is_managed, "reserveTokens": place.most_output}
    provider = {"baseUrl": f"{place.url}/v1", "api": "openai-completions", "apiKey": "none", "models": [model]}
    place.write(".pi/agent/models.json", json.dumps({"providers": {"elbowroom": provider}}))
    place.write(".pi/agent/settings.json", json.dumps({"defaultModel": place.model, "compaction": compaction}))
    return {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}


def run_pi(home: Path, prompt: str) -> list[str]:
    """Return the command line of pi."""
    program = home / "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"
    return [node(), str(program), "-p", "--mode", "json", "--provider", "elbowroom", prompt]


def set_up_claude(place: Place) -> dict[str, str]:
    """Return the variables of Claude Code, which needs no settings."""
    return {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": place.model,
        "ANTHROPIC_SMALL_FAST_MODEL": place.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(place.window),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(place.most_output),
        "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE": "100000000",
        "DISABLE_AUTO_COMPACT": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def run_claude(home: Path, prompt: str) -> list[str]:
    """Return the command line of Claude Code."""
    tools = "Bash Edit Read Grep Glob Write"
    spoken = ["--output-format", "stream-json", "--verbose"]
    return ["claude", "-p", prompt, *spoken, "--allowedTools", tools]


AGENTS: Final = {
    agent.name: agent
    for agent in (
        Agent("opencode", set_up_opencode, run_opencode, lambda line: line.get("type") == "error"),
        Agent("Codex", set_up_codex, run_codex, lambda line: line.get("type") in ("error", "turn.failed")),
        Agent(
            "pi",
            set_up_pi,
            run_pi,
            lambda line: "error" in str(line.get("type")) or (line.get("message") or {}).get("stopReason") == "error",
        ),
        Agent("Claude Code", set_up_claude, run_claude, lambda line: bool(line.get("is_error"))),
    )
}


def node() -> str:
    """Return a Node.js that is new enough: the system's, else the one that Playwright brings.

    Raises LibraryUnavailableError.
    """
    brought = Path(sys.prefix).glob("lib/python*/site-packages/playwright/driver/node")
    for found in filter(None, (shutil.which("node"), *map(str, brought))):
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
        if tuple(int(number) for number in version.strip().lstrip("v").split(".")[:2]) >= OLDEST_NODE:
            return found
    raise LibraryUnavailableError("Node.js is not installed, or too old")


def installed_agents(cache: Path) -> Path:
    """Return the folder where the agents of the lock file are installed, below `cache`; install them where needed.

    Not by `npm ci`: it fails where a package for another system, which the lock file does not name, cannot be had.
    Raises LibraryUnavailableError.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise LibraryUnavailableError("Node.js is not installed")
    home = cache / f"agents-{hashlib.sha256((LOCKED / 'package-lock.json').read_bytes()).hexdigest()[:16]}"
    if (home / "ready").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(LOCKED / name, home)
    command = [npm, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=True)
    except subprocess.SubprocessError as error:
        raise LibraryUnavailableError(f"the packages cannot be fetched: {error}") from error
    (home / "ready").touch()
    return home


def path_with_ripgrep(installed: Path) -> str:
    """Return the search path with the ripgrep that Codex brings, for opencode would fetch one from the network."""
    [ripgrep] = installed.glob("node_modules/@openai/codex-*/vendor/*/codex-path")
    return os.pathsep.join((str(ripgrep), os.environ["PATH"]))


async def run(agent: Agent, installed: Path, place: Place, prompt: str, seconds: float) -> Outcome:
    """Have an agent do a task to its end, with no network but 127.0.0.1; it is killed after so many seconds."""
    place.home.mkdir(parents=True, exist_ok=True)
    variables = (
        environment(place.home, PATH=path_with_ripgrep(installed))
        | agent.set_up(place)
        | dict.fromkeys(PROXIES, NOWHERE)
        | UNPROXIED
    )
    spoken = place.home / "said.txt"
    with spoken.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *agent.command(installed, prompt),
            cwd=place.folder,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = await process.wait()
    said = spoken.read_text(encoding="utf-8", errors="replace")
    return Outcome(code, [line for line in _objects(said) if agent.is_error(line)], said)


def _objects(said: str) -> Iterator[Body]:
    for line in said.splitlines():
        if line.startswith("{"):
            with suppress(ValueError):
                yield json.loads(line)
