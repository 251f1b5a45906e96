"""A mock of LM Studio that is never the limit: raw protocol, prepared frames, no JSON parsing.

`upstream.py PORT` listens on 127.0.0.1. What a chat request gets is ordered by its last user message (see
`Reply`), because every server in between has to leave that text alone.
"""

import asyncio
import functools
import json
import re
import sys
from dataclasses import dataclass
from typing import Self

MODEL = "bench-model"
FILE_MODEL = "bench-file-model"
UNKNOWN_TEMPLATE_MODEL = "bench-unknown-template-model"
WINDOW = 131_072
WORDS = (
    " the river runs slowly past old houses and people walk along it every morning before work begins"
    " while boats carry fruit to market under three stone bridges that were built long ago by hand"
)
VOCABULARY = tuple(f" {word}" for word in WORDS.split())
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ORDER = re.compile(rb"bench-load tokens=(\d+) rate=(\d+) burst=(\d+);")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
STREAM = re.compile(rb'"stream" *: *true')
NAMED = re.compile(rb'"model" *: *"([^"]*)"')
WANTS_USAGE = re.compile(rb'"include_usage" *: *true')


@dataclass(frozen=True, slots=True)
class Reply:
    """What the upstream is to stream: tokens at `rate` per second (0: as fast as the socket takes them).

    `burst` frames go out in one write; an engine writes every frame by itself, which is 1.
    """

    tokens: int
    rate: int = 0
    burst: int = 1

    @classmethod
    def ordered_in(cls, body: bytes) -> Self | None:
        """Read the last order in a request's body; None where there is none."""
        start = body.rfind(b"bench-load ")
        found = ORDER.match(body, start) if start >= 0 else None
        return cls(*map(int, found.groups())) if found else None

    def order(self) -> str:
        """Return the words for the last user message that order this reply."""
        return f"bench-load tokens={self.tokens} rate={self.rate} burst={self.burst};"

    def text(self) -> str:
        """Return the whole text that a client must have received in the end."""
        return "".join(map(token, range(self.tokens)))


def token(index: int) -> str:
    """Return the token at this place: a word as a model writes it; every tenth is the place's own number."""
    return f" {index}" if index % 10 == 0 else VOCABULARY[index % len(VOCABULARY)]


def in_chunk(data: bytes) -> bytes:
    """Wrap bytes in one chunk of HTTP's chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(model: str, **fields: object) -> bytes:
    """Return one streamed chunk in LM Studio's shape, ready for the socket."""
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": model,
        "system_fingerprint": model,
        **fields,
    }
    return in_chunk(b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n")


def choice(delta: dict[str, str], finish_reason: str | None = None) -> list[dict[str, object]]:
    """Return the `choices` of a chunk; LM Studio repeats the role in every delta."""
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]


@functools.cache
def frames(model: str, count: int) -> tuple[bytes, ...]:
    """Return the first `count` token frames of a model."""
    return tuple(event(model, choices=choice({"role": "assistant", "content": token(index)})) for index in range(count))


def ending(model: str, reply: Reply, body: bytes) -> bytes:
    """Return what follows the last token: finish chunk, usage if it was asked for, [DONE], the body's end."""
    parts = [event(model, choices=choice({}, finish_reason="stop"))]
    if WANTS_USAGE.search(body):
        # One word, one token, and some for what surrounds a message and for the signs in an order: never below a count.
        prompt = body.count(b" ") + 20 * body.count(b'"role"') + 20 * body.count(b"bench-load ")
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": reply.tokens,
            "total_tokens": prompt + reply.tokens,
        }
        parts.append(event(model, choices=[], usage=usage))
    return b"".join([*parts, in_chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"])


def models() -> dict[str, object]:
    """Return the body of `/api/v1/models`: loaded models with room for many requests at once."""
    return {"models": [model(MODEL), model(FILE_MODEL), model(UNKNOWN_TEMPLATE_MODEL)]}


def model(name: str) -> dict[str, object]:
    """Return one loaded model."""
    config = {"context_length": WINDOW, "eval_batch_size": 512, "parallel": 128, "flash_attention": True}
    return {
        "type": "llm",
        "publisher": "bench",
        "key": name,
        "display_name": "Bench Model",
        "architecture": "llama",
        "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
        "size_bytes": 5_030_000_000,
        "params_string": "8B",
        "loaded_instances": [{"id": name, "config": config}],
        "max_context_length": WINDOW,
        "format": "gguf",
        "capabilities": {"vision": False, "trained_for_tool_use": True},
        "description": None,
        "variants": [f"{name}@q4_k_m"],
        "selected_variant": f"{name}@q4_k_m",
    }


class Stream:
    """One reply on its way: paced by the clock, or as fast as the transport takes it."""

    def __init__(self, transport: asyncio.Transport, model: str, reply: Reply, last: bytes) -> None:
        self._transport = transport
        self._reply = reply
        self._last = last
        self._frames = frames(model, reply.tokens)
        self._sent = 0
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self.paused = False

    def start(self) -> None:
        """Send the head of the answer and as much of it as is due."""
        self._transport.write(CHUNKED)
        self.go_on()

    def go_on(self) -> None:
        """Send what is due now; the rest follows by timer or when the transport has room again."""
        reply = self._reply
        while self._sent < reply.tokens and not self.paused and not self._transport.is_closing():
            self._transport.write(b"".join(self._frames[self._sent : self._sent + reply.burst]))
            self._sent = min(self._sent + reply.burst, reply.tokens)
            if reply.rate:
                self._loop.call_at(self._started + self._sent / reply.rate, self.go_on)
                return
        if self._sent == reply.tokens and self._last:
            self._transport.write(self._last)
            self._last = b""


class Upstream(asyncio.Protocol):
    """One connection to the mock; `counts` is shared by all of them."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._buffer = bytearray()
        self._wanted = 0
        self._stream: Stream | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        if self._stream:
            self._stream.paused = True

    def resume_writing(self) -> None:
        if self._stream:
            self._stream.paused = False
            self._stream.go_on()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._wanted and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._buffer, 0, end)
            self._wanted = end + 4 + (int(length[1]) if length else 0)
        if self._wanted and len(self._buffer) >= self._wanted:
            request = bytes(self._buffer[: self._wanted])
            del self._buffer[: self._wanted]
            self._wanted = 0
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if method == "POST" and path.endswith("/chat/completions"):
            self._chat(body)
        elif path.endswith("/lmstudio-greeting"):
            self._json(200, {"lmstudio": True})
        elif path.endswith("/api/v1/models"):
            self._json(200, models())
        elif path.endswith("/v1/models"):
            names = (MODEL, FILE_MODEL, UNKNOWN_TEMPLATE_MODEL)
            listed = [{"id": name, "object": "model", "owned_by": "organization_owner"} for name in names]
            self._json(200, {"object": "list", "data": listed})
        elif path.endswith("/bench/counts"):
            self._json(200, self._counts)
        else:  # LM Studio answers 200 here too
            self._json(200, {"error": f"Unexpected endpoint or method. ({method} {path})"})

    def _chat(self, body: bytes) -> None:
        self._counts["requests"] += 1
        self._counts["bytes"] += len(body)
        reply = Reply.ordered_in(body)
        if reply is None or not STREAM.search(body):
            self._json(400, {"error": "The bench upstream takes streams with a bench-load order only."})
            return
        named = NAMED.search(body)
        model = named[1].decode() if named else MODEL
        self._stream = Stream(self._transport, model, reply, ending(model, reply, body))
        self._stream.start()

    def _json(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nX-Powered-By: Express\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def main(port: int) -> None:
    """Serve until the process is ended."""
    counts = {"requests": 0, "bytes": 0}
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(counts), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
