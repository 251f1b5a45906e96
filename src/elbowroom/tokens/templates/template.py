"""Chat templates: the Jinja program inside a model file that turns messages into the text the model reads.

A template comes from a stranger. It runs in Jinja's immutable sandbox, which keeps it from reaching Python. The
sandbox does not limit its time and memory; renderer.py does.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from elbowroom.tokens.errors import TemplateFailed, TemplateOverran, TemplateRefused

if TYPE_CHECKING:
    from jinja2 import Environment, Template

    from elbowroom.tokens.templates.message_by_message import GrowingPrompts

MAX_CHARACTERS: Final = 16_000_000
"""The longest text a template may write: far above any window, far below what hurts."""


Dialect = Literal["transformers", "llama.cpp", "own"]
"""Whose reading of Jinja a template is rendered with; our own templates need no sandbox."""


def local_time() -> datetime:
    """Return the time of this machine with its zone, for templates that write the date into the prompt."""
    return datetime.now().astimezone()


class ChatTemplate:
    """A chat template, ready to render; two threads may use one at the same time.

    `name` is what errors call it, usually the model. `clock` gives the date for templates that write one.
    With the dialect "llama.cpp" a template may change the lists it is given: give it copies. Nothing is parsed,
    and Jinja isn't loaded, before the first `evaluate`.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "this model",
        clock: Callable[[], datetime] = local_time,
        dialect: Dialect = "transformers",
    ) -> None:
        self.source = source
        self.name = name
        self.clock = clock
        self.dialect: Dialect = dialect

    def evaluate(self, variables: Mapping[str, Any]) -> str:
        """Render with exactly these variables; a missing name is undefined there. Raises `TemplateFailed`."""
        from elbowroom.tokens.templates.jinja import CLOCK_VARIABLE, RefusedByTemplate

        hidden = {CLOCK_VARIABLE: self.clock}
        try:
            grown = self._growing.pieces(variables, hidden)
            return self._joined(self._compiled.generate({**variables, **hidden}) if grown is None else grown)
        except TemplateFailed:
            raise
        except RefusedByTemplate as refusal:
            raise TemplateRefused(self.name, refusal.message or "it gives no reason") from None
        except (RecursionError, MemoryError) as error:
            raise TemplateOverran(self.name, cause_of(error)) from None
        except Exception as error:  # noqa: BLE001 - a stranger's program may raise anything
            raise TemplateFailed(self.name, cause_of(error)) from None

    def knows(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether these messages, but for the last few, were rendered before, so that it takes little time."""
        return "_growing" in vars(self) and self._growing.knows(messages)

    @functools.cached_property
    def _compiled(self) -> "Template":
        return environment(self.dialect).from_string(self.source)

    @functools.cached_property
    def _growing(self) -> "GrowingPrompts":
        from elbowroom.tokens.templates.message_by_message import GrowingPrompts

        return GrowingPrompts(environment(self.dialect), self.source)

    def _joined(self, pieces: Iterable[str]) -> str:
        length = 0
        written = []
        for piece in pieces:
            length += len(piece)
            if length > MAX_CHARACTERS:
                raise TemplateOverran(self.name, f"it wrote more than {MAX_CHARACTERS:,} characters")
            written.append(piece)
        return "".join(written)


@functools.cache
def environment(dialect: Dialect) -> "Environment":
    """Return this process's Jinja environment for a dialect; loads Jinja."""
    from elbowroom.tokens.templates.jinja import ChatTemplates, SandboxedTemplates, engine_environment

    if dialect == "own":
        return ChatTemplates()
    return SandboxedTemplates() if dialect == "transformers" else engine_environment()


def sha256_of(source: str) -> str:
    """Return the hash by which a template is known: of its source without the white space around it."""
    return hashlib.sha256(source.strip().encode("utf-8", "surrogatepass")).hexdigest()


def cause_of(error: Exception) -> str:
    """Say in one line what a template ran into, with the line of the template where Jinja knows it."""
    if isinstance(error, RecursionError):
        return "it calls itself without an end"
    if isinstance(error, MemoryError):
        return "it needs more memory than it may take"
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if isinstance(line, int) else ""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:500]}{where}"
