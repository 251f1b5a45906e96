"""The loads: how many streams ask for what.

In the flood the upstream writes 16 frames at a time, as fast as the socket takes them: it is always ahead of
every server, so a read always finds a full buffer. With one frame per write, as engines do it, the upstream's
own system calls set the pace, and chance decides how many frames a read finds: measured too, but not judged.
"""

import json
from dataclasses import dataclass, replace
from typing import Literal, Self

from upstream import WORDS, Reply


@dataclass(frozen=True, slots=True)
class History:
    """The messages before the last one: how many, of how many bytes, and whether they are new every time."""

    messages: int
    size: int
    unseen: bool

    def build(self, nonce: str) -> list[dict[str, str]]:
        """Return user and assistant messages in turn, about `size` bytes each."""
        prefix = nonce if self.unseen else "the same"
        text = (WORDS * (self.size // len(WORDS) + 1))[: self.size]
        roles = ("user", "assistant")
        return [{"role": roles[i % 2], "content": f"{prefix} {i}{text}"} for i in range(self.messages)]


@dataclass(frozen=True, slots=True)
class Load:
    """So many streams at the same time, so many requests one after another in each, all for one reply."""

    name: str
    unit: Literal["frame", "request"]  # of CPU cost
    streams: int
    requests: int
    reply: Reply
    history: History | None = None
    probe: bool = False  # ask /health all the while, to see how long the event loop is away
    with_direct: bool = True  # False where the upstream by itself has nothing to compare with
    with_forgetful: bool = False  # True where it is compared what it costs to keep the conversations
    needs_steady_control: bool = True  # False where what is read out is no CPU cost, or is not judged

    @property
    def answers(self) -> int:
        """The number of answers that one visit has to bring."""
        return self.streams * self.requests

    @property
    def units(self) -> int:
        """The number of frames or requests over which the CPU time of one visit is spread."""
        return self.answers * self.reply.tokens if self.unit == "frame" else self.answers

    def quick(self) -> Self:
        """Return the same load at a size that takes a fraction of a second: for warming up and smoke runs."""
        tokens = max(1, self.reply.tokens // 10)
        return replace(self, requests=max(1, self.requests // 10), reply=replace(self.reply, tokens=tokens))

    def body(self, model: str, nonce: str) -> bytes:
        """Return the JSON of one request; the nonce makes it differ from every other."""
        history = self.history.build(nonce) if self.history else []
        last = {"role": "user", "content": f"Request {nonce}. {self.reply.order()}"}
        request = {
            "model": model,
            "messages": [*history, last],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(request, separators=(",", ":")).encode()


SECOND = Reply(tokens=50, rate=50)
SMALL = Reply(tokens=8)
SEEN = History(messages=399, size=1000, unseen=False)
UNSEEN = replace(SEEN, unseen=True)
LOADS = (
    Load(
        "paced",
        "frame",
        streams=20,
        requests=1,
        reply=Reply(tokens=150, rate=50),
        with_direct=False,
        with_forgetful=True,
    ),
    Load("flood", "frame", streams=1, requests=4, reply=Reply(tokens=20_000, burst=16), with_forgetful=True),
    Load("frame_flood", "frame", streams=1, requests=2, reply=Reply(tokens=20_000), needs_steady_control=False),
    Load("first_token", "request", streams=1, requests=200, reply=SMALL),
    Load("next_turn", "request", streams=1, requests=20, reply=SMALL, history=SEEN),
    Load("new_body", "request", streams=1, requests=10, reply=SMALL, history=UNSEEN),
    Load("many_streams", "frame", streams=100, requests=1, reply=SECOND, needs_steady_control=False),
    Load(
        "stall",
        "frame",
        streams=4,
        requests=2,
        reply=SECOND,
        history=UNSEEN,
        probe=True,
        needs_steady_control=False,
    ),
    Load(
        "hold_new",
        "request",
        1,
        requests=10,
        reply=SMALL,
        history=UNSEEN,
        probe=True,
        with_direct=False,
        needs_steady_control=False,
    ),
    Load(
        "hold_known",
        "request",
        1,
        requests=20,
        reply=SMALL,
        history=SEEN,
        probe=True,
        with_direct=False,
        needs_steady_control=False,
    ),
)
