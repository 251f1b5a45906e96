"""What is known of the request that is being answered: in its log line, and its id in every line written for it."""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from elbowroom.logs.redaction import ClientWords

CODE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,49}")


@dataclass(slots=True)
class RequestFacts:
    """One request, filled in while it is answered; tokens are None where nobody has counted them.

    `words` is what no log may repeat: what the client said, and what an engine was sent for it.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    agent: str = ""
    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    steps: int | None = None
    finish_reason: str = ""
    error: str = ""
    compactions: int = 0
    words: ClientWords | None = field(default=None, repr=False)
    _body: Any = field(default=None, repr=False)

    def heard(self, body: Any) -> None:
        """Take note of the body that the client has sent."""
        self._body = body
        self.words = ClientWords.of(body)

    def told(self, body: Any) -> None:
        """Take note of the body that an engine is sent: with instructions and results of tools, which it may quote."""
        self.words = ClientWords.of(self._body, body)

    def failed(self, error: Exception) -> None:
        """Take note of how it failed: by the error's code, where that is one and no text of an engine's."""
        code = getattr(error, "code", None)
        self.error = code if isinstance(code, str) and CODE.fullmatch(code) else type(error).__name__

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that log lines are to show, whoever says them elsewhere."""
        return tuple(name for name in (self.model.partition("/")[2], self.agent) if name)

    def take_usage(self, usage: Any) -> None:
        """Take the token counts of a usage object in OpenAI's form; whatever else it is says nothing."""
        found = usage if isinstance(usage, Mapping) else {}
        self.tokens_in = _whole(found.get("prompt_tokens", found.get("input_tokens")))
        self.tokens_out = _whole(found.get("completion_tokens", found.get("output_tokens")))


CURRENT: Final[ContextVar[RequestFacts | None]] = ContextVar("elbowroom_request", default=None)


def request_facts() -> RequestFacts:
    """Return the facts of the request that this task works for; outside of one, facts that nobody reads."""
    return CURRENT.get() or RequestFacts()


@contextmanager
def requested() -> Iterator[RequestFacts]:
    """Begin a request: all that is logged inside, and in tasks that are begun inside, carries its id."""
    token = CURRENT.set(facts := RequestFacts())
    try:
        yield facts
    finally:
        CURRENT.reset(token)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
