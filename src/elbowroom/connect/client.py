"""A program that `elbowroom connect` knows, and the texts that it is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["json", "toml", "yaml", "sh", "text"]


@dataclass(frozen=True, slots=True)
class Part:
    """What a program is told in one of its files, with `$address`, `$token`, `$model`, `$window`, `$output` in it.

    `folder` is where the file usually is, and `variable` the environment's name for another one. Of the file's names
    the first one that is there counts, else the first of all. Without a name, a person types it into a form, as `about`
    tells; `label` is what the text is called there. `$docker` is the address as programs in Docker reach it, `$widened`
    the window with an answer and what clients keep free.
    """

    kind: Kind
    text: str
    folder: str = ""
    names: tuple[str, ...] = ()
    variable: str = ""
    about: str = ""
    label: str = ""

    @property
    def place(self) -> str:
        """Return the file as people write it."""
        return f"{self.folder}/{self.names[0]}" if self.names else ""

    @property
    def said(self) -> str:
        """Return what to do with the text."""
        return self.about or f"In {self.place}:"


@dataclass(frozen=True, slots=True)
class Client:
    """A program: the name of the command's argument and its own, and what it is told.

    `is_written` tells whether the command can write it; `then` is what to do afterwards. `path` follows the address of
    elbowroom in what the program is told, `headers` is what it sends with each request. `least_window` is the smallest
    window in tokens, of those that were tried, in which it answered; 0 where none was tried.
    """

    id: str
    name: str
    parts: tuple[Part, ...] = ()
    is_written: bool = False
    then: str = ""
    path: str = "/v1"
    headers: Mapping[str, str] = field(default_factory=dict)
    least_window: int = 0

    @property
    def is_told_a_model(self) -> bool:
        """Tell whether it is told a model, and not only where elbowroom is."""
        return any("$model" in part.text for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Return it as the page reads it."""
        parts = [
            {"about": part.said, "label": part.label or part.place or self.name, "text": part.text}
            for part in self.parts
        ]
        return {"id": self.id, "name": self.name, "parts": parts, "is_written": self.is_written, "then": self.then}
