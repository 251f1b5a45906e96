"""The program of the worker process: renders chat templates that are not known, one request at a time.

Frames go both ways over its stdin and stdout: four bytes of length, big-endian, and that many bytes. An order is JSON;
a reply begins with its kind, and is a prompt's text or the JSON of an error. Both processes remember the last prompt:
of messages and text that the next one begins with as well, only the number travels. The program ends when its stdin
does, so it never outlives the process that started it; stuck in a template it ends itself. Run it with
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

from elbowroom.caches import HISTORY_LETTERS
from elbowroom.errors import ElbowroomError
from elbowroom.tokens.errors import ConversationNotContinuable, TemplateFailed, TemplateOverran, TemplateRefused
from elbowroom.tokens.templates import ChatPrompt, ChatRequest, Message, environment

LENGTH_BYTES = 4
TEXT, ERROR, READY = b"t", b"e", b"r"
COMPILED_TEMPLATES = 8
ERRORS: Mapping[str, type[TemplateFailed]] = {
    "failed": TemplateFailed,
    "refused": TemplateRefused,
    "overran": TemplateOverran,
}


PIECE: Final = 4096
"""Letters of two texts that are compared at once."""


@dataclass(slots=True)
class LastPrompt:
    """The last prompt that came to a text, as both processes remember it alike."""

    messages: list[Message] = field(default_factory=list)
    text: str = ""

    def keep(self, messages: list[Message], text: str, order: bytes) -> None:
        """Remember the prompt of an order; nothing where order and text are longer than all histories may be."""
        is_small = len(order) + len(text) <= HISTORY_LETTERS
        self.messages, self.text = (messages, text) if is_small else ([], "")

    def shared_with(self, text: str) -> int:
        """Return how many letters both texts begin with alike, as far as whole pieces go."""
        places = range(0, min(len(self.text), len(text)) - PIECE + 1, PIECE)
        differ = (at for at in places if self.text[at : at + PIECE] != text[at : at + PIECE])
        return next(differ, len(places) * PIECE)


LAST: Final = LastPrompt()
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
        messages = [*LAST.messages[: order["shared"]], *order["messages"]]
        text = render(order, messages)
        shared = LAST.shared_with(text)
        reply = TEXT + shared.to_bytes(LENGTH_BYTES, "big") + text[shared:].encode("utf-8", "surrogatepass")
        LAST.keep(messages, text, frame)
        return reply
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


def render(order: Mapping[str, Any], messages: list[Message]) -> str:
    """Build the prompt of these messages for one order, with the time that came along."""
    NOW[0] = datetime.fromisoformat(order["now"])
    prompt = compiled(order["source"], order["name"], order["bos_token"], order["eos_token"])
    return prompt.text(ChatRequest(messages, order["tools"], order["arguments"], order["add_generation_prompt"]))


@functools.lru_cache(COMPILED_TEMPLATES)
def compiled(source: str, name: str, bos_token: str, eos_token: str) -> ChatPrompt:
    """Return a prompt for a template; the last ones used stay compiled."""
    return ChatPrompt(source, name=name, bos_token=bos_token, eos_token=eos_token, clock=lambda: NOW[0])


if __name__ == "__main__":
    main()
