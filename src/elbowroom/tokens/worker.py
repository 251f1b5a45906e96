"""The program of the worker process: renders chat templates that are not known, one request at a time.

Frames go both ways over its stdin and stdout: four bytes of length, big-endian, and that many bytes. An order is JSON;
a reply begins with its kind, and is a prompt's text or the JSON of an error. It ends when its stdin does, so it never
outlives the process that started it; stuck in a template it ends itself. Run it with
`python -m elbowroom.tokens.worker BYTES`, the memory it may take.
"""

import contextlib
import faulthandler
import functools
import json
import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

from elbowroom.errors import ElbowroomError
from elbowroom.tokens.errors import ConversationNotContinuable, TemplateFailed, TemplateOverran, TemplateRefused
from elbowroom.tokens.templates import ChatPrompt, ChatRequest, environment

LENGTH_BYTES = 4
TEXT, ERROR, READY = b"t", b"e", b"r"
COMPILED_TEMPLATES = 8
ERRORS: Mapping[str, type[TemplateFailed]] = {
    "failed": TemplateFailed,
    "refused": TemplateRefused,
    "overran": TemplateOverran,
}


NOW = [datetime.fromtimestamp(0, UTC)]
"""The time that templates are told: that at which the server has asked for the text that is rendered now."""


def main() -> None:
    """Answer requests until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environment("llama.cpp")
    limit_resources(int(sys.argv[1]))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    with open(os.devnull, "w") as nowhere:
        write_frame(replies, READY)
        while (frame := read_frame(requests)) is not None:
            write_frame(replies, answer(frame, nowhere.fileno()))


def limit_resources(memory: int) -> None:
    """Cap this process's memory and forbid it to write files, where the system knows such limits."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        _, hardest = resource.getrlimit(kind)
        with contextlib.suppress(OSError, ValueError):  # macOS knows some limits only by name
            resource.setrlimit(kind, (limit if hardest < 0 else min(limit, hardest), hardest))


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next frame, None at the end of the stream."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    frame = stream.read(int.from_bytes(length, "big"))
    return frame if len(frame) == int.from_bytes(length, "big") else None


def write_frame(stream: BinaryIO, frame: bytes) -> None:
    """Write one frame and flush it."""
    stream.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
    stream.flush()


def answer(frame: bytes, nowhere: int) -> bytes:
    """Return the rendered prompt, or the JSON `{error, reason}` that the caller raises."""
    try:
        order = json.loads(frame)
        # Needs neither the interpreter's lock nor a living parent, unlike the deadline on the other side.
        faulthandler.dump_traceback_later(order["seconds"], exit=True, file=nowhere)
        return TEXT + render(order).encode("utf-8", "surrogatepass")
    except ConversationNotContinuable as refusal:
        return failure("not continuable", refusal.message)
    except TemplateFailed as error:
        kind = next(name for name, known in ERRORS.items() if type(error) is known)
        return failure(kind, error.reason)
    except MemoryError:
        return failure("overran", "it needs more memory than it may take")
    except (RecursionError, ElbowroomError) as error:
        return failure("failed", str(error))
    finally:
        faulthandler.cancel_dump_traceback_later()


def failure(kind: str, reason: str) -> bytes:
    """Return the reply that tells of an error."""
    return ERROR + json.dumps({"error": kind, "reason": reason}).encode()


def render(order: Mapping[str, Any]) -> str:
    """Build the prompt for one order, with the time that came along."""
    NOW[0] = datetime.fromisoformat(order["now"])
    prompt = compiled(order["source"], order["name"], order["bos_token"], order["eos_token"])
    return prompt.text(
        ChatRequest(order["messages"], order["tools"], order["arguments"], order["add_generation_prompt"])
    )


@functools.lru_cache(COMPILED_TEMPLATES)
def compiled(source: str, name: str, bos_token: str, eos_token: str) -> ChatPrompt:
    """Return a prompt for a template; the last ones used stay compiled."""
    return ChatPrompt(source, name=name, bos_token=bos_token, eos_token=eos_token, clock=lambda: NOW[0])


if __name__ == "__main__":
    main()
