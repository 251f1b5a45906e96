"""compaction-conformance-kit, somebody else's yardstick: sessions with canaries, and a benchmark of compactors."""

import importlib
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from elbowroom.context.transcript import Message, text_of

LOCK: Final = Path(__file__).with_name("kit.lock")
FOLDER: Final = Path(__file__).parents[2] / ".venv" / "kit"
GENERATORS: Final = (
    ("generated", "build_generated_session"),
    ("corpus", "build_random_session"),
    ("semantic_corpus", "build_semantic_session"),
    ("semantic_corpus", "build_semantic_heldout_session"),
)
ROLES: Final = ("system", "user", "assistant", "tool")


def part(name: str) -> ModuleType:
    """Return a module of the kit, which is installed beside our own packages where it is not there yet."""
    if not FOLDER.exists():
        sys.stderr.write(f"Installing {LOCK.read_text('utf-8').split()[0]} into {FOLDER} (once) ...\n")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--target", str(FOLDER)]
        done = subprocess.run([sys.executable, "-m", "pip", "install", *options, "--requirement", str(LOCK)])
        if done.returncode:
            raise SystemExit(f"The yardsticks need the package in {LOCK}: pip's message is above. Run this again.")
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(f"compaction_kit.{name}")


@lru_cache
def sessions(seeds: tuple[int, ...]) -> list[tuple[list[Message], list[Any]]]:
    """Return the messages and the canaries of each generator's sessions with these seeds."""
    built = [getattr(part(module), name)(seed) for module, name in GENERATORS for seed in seeds]
    return [(messages_of_turns(session.turns), list(canaries)) for session, canaries, *_ in built]


def messages_of_turns(turns: Sequence[Any]) -> list[Message]:
    """Return the kit's turns as messages."""
    return [{"role": turn.role, "content": turn.text} for turn in turns]


def written(messages: Sequence[Message]) -> str:
    """Return messages as the kit writes a transcript."""
    return "\n".join(f"[{message['role']}] {text_of(message)}" for message in messages)


def held(canaries: Sequence[Any], messages: Sequence[Message]) -> int:
    """Return how many canaries the kit finds in a prompt."""
    probe, text = part("probes").BehaviorProbe(), written(messages)
    return sum(probe.probe(canary, text).survived for canary in canaries)


def only_old(canaries: Sequence[Any], messages: Sequence[Message]) -> tuple[int, int]:
    """Return of how many updated canaries an old value is all that a prompt has, and how many were updated."""
    text = written(messages).lower()
    updated = [canary for canary in canaries if canary.superseded_tokens]
    old = [
        any(token.lower() in text for token in canary.superseded_tokens)
        and not all(token.lower() in text for token in canary.required_tokens)
        for canary in updated
    ]
    return sum(old), len(updated)
