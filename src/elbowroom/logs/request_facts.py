"""The facts about the request that is being answered, for its log line; its id is in every line written for it."""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from elbowroom.logs.redaction import ClientWords

CODE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,49}")


@dataclass(slots=True)
class RequestFacts:
    """The facts about one request, filled in while it is answered; tokens are None where they were not counted.

    `quotable` are the bodies that an error may quote: the client's, and the last one sent to the engine, which has
    instructions and results of tools.
    """

    id: str = field(default_factory=partial(secrets.token_hex, 8))
    agent: str = ""
    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    steps: int | None = None
    finish_reason: str = ""
    error: str = ""
    compactions: int = 0
    cache_lost: Mapping[str, Any] | None = None
    quotable: tuple[Any, ...] = field(default=(), repr=False)
    _words: ClientWords | None = field(default=None, repr=False)

    @property
    def words(self) -> ClientWords | None:
        """Return the words that no log line may repeat, prepared at the first line; None where there are none."""
        if self._words is None or self._words.bodies is not self.quotable:
            self._words = ClientWords(self.quotable) if self.quotable else None
        return self._words

    def failed(self, error: BaseException) -> None:
        """Note the error: its code, or its class where the code is a text of the engine."""
        code = getattr(error, "code", None)
        self.error = code if isinstance(code, str) and CODE.fullmatch(code) else type(error).__name__

    def lost(self, loss: Mapping[str, Any]) -> None:
        """Note what the engine had to read again; of several steps the largest stands."""
        if self.cache_lost is None or loss["tokens"] > self.cache_lost["tokens"]:
            self.cache_lost = loss

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that stay in log lines, even if the client said them too."""
        return tuple(name for name in (self.model.partition("/")[2], self.agent) if name)

    def take_usage(self, usage: Any) -> None:
        """Note the token counts of a usage object in OpenAI's form; anything else counts as no usage."""
        found = usage if isinstance(usage, Mapping) else {}
        self.tokens_in = _whole(found.get("prompt_tokens", found.get("input_tokens")))
        self.tokens_out = _whole(found.get("completion_tokens", found.get("output_tokens")))


CURRENT: Final[ContextVar[RequestFacts | None]] = ContextVar("elbowroom_request", default=None)


def request_facts() -> RequestFacts:
    """Return the facts of the request that this task works for; outside of a request, facts that are thrown away."""
    return CURRENT.get() or RequestFacts()


@contextmanager
def requested() -> Iterator[RequestFacts]:
    """Begin a request: log lines in this block, and in tasks that it starts, carry its id."""
    token = CURRENT.set(facts := RequestFacts())
    try:
        yield facts
    finally:
        CURRENT.reset(token)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
