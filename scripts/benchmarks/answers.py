"""Takes answers apart, after the clock has stopped, and holds them against what the upstream sent."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from client import HEAD_END, Exchange
from upstream import Reply

CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
ERROR_SHOWN = 600


class BrokenAnswer(Exception):
    """A server did not answer with exactly what the upstream had sent, so its numbers mean nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete and correct answer: the number of its content chunks, and seconds to the first of them."""

    deltas: int
    first_token: float


def unchunked(data: bytes) -> tuple[bytes, bytes]:
    """Split chunked bytes into the content of the whole chunks and the rest, which begins with a size."""
    content, position = [], 0
    while (line := data.find(b"\r\n", position)) >= 0:
        size = int(data[position:line].partition(b";")[0], 16)
        end = line + 2 + size
        if size == 0 or len(data) < end + 2:
            break
        content.append(data[line + 2 : end])
        position = end + 2
    return b"".join(content), data[position:]


def body_of(exchange: Exchange) -> Iterator[tuple[float, bytes]]:
    """Yield the pieces of an answer's body with their arrival times; any status but 200 is a BrokenAnswer."""
    rest, chunked = b"", None
    for arrived, data in exchange.reads:
        rest += data
        if chunked is None:
            head, found, body = rest.partition(HEAD_END)
            if not found:
                continue
            if b" 200 " not in head.split(b"\r\n")[0]:
                whole = b"".join(data for _, data in exchange.reads).decode(errors="replace")
                raise BrokenAnswer(f"expected status 200, got: {' '.join(whole[:ERROR_SHOWN].split())}")
            chunked, rest = CHUNKED.search(head) is not None, body
        piece, rest = unchunked(rest) if chunked else (rest, b"")
        yield arrived, piece


def events_of(exchange: Exchange) -> Iterator[tuple[float, bytes]]:
    """Yield the data of every server-sent event with its arrival time; comments are left out."""
    rest = b""
    for arrived, piece in body_of(exchange):
        *blocks, rest = (rest + piece).split(b"\n\n")
        for block in blocks:
            for line in block.split(b"\n"):
                if line.startswith(b"data:"):
                    yield arrived, line[5:].strip()


def checked(exchange: Exchange, reply: Reply) -> Answer:
    """Return the answer if every token came once, in order, and it was finished; else raise BrokenAnswer."""
    texts: list[str] = []
    first, finish, done = 0.0, None, False
    for arrived, data in events_of(exchange):
        if data == b"[DONE]":
            done = True
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise BrokenAnswer(f"an error in the stream: {data[:ERROR_SHOWN].decode(errors='replace')}")
        for choice in chunk.get("choices", []):
            if text := choice["delta"].get("content"):
                first = first or arrived
                texts.append(text)
            finish = choice.get("finish_reason") or finish
    received = "".join(texts)
    if received != reply.text():
        raise BrokenAnswer(difference(received, reply.text()))
    if finish != "stop" or not done:
        raise BrokenAnswer(f"the text is whole but finish_reason is {finish!r} and [DONE] came: {done}")
    return Answer(len(texts), first - exchange.sent_at)


def difference(received: str, expected: str) -> str:
    """Say where two texts part."""
    same = next((i for i, (a, b) in enumerate(zip(received, expected, strict=False)) if a != b), None)
    at = min(len(received), len(expected)) if same is None else same
    begin, end = max(0, at - 20), at + 40
    return (
        f"the text is wrong from character {at} on ({len(received)} characters instead of {len(expected)}):"
        f" ...{received[begin:end]!r} instead of ...{expected[begin:end]!r}"
    )
