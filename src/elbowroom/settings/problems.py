"""What is wrong with settings, key by key."""

from collections.abc import Sequence
from dataclasses import dataclass

from elbowroom.errors import WrongSettings
from elbowroom.settings.keys import Key, key_text


@dataclass(frozen=True, slots=True)
class Problem:
    """A key that is wrong: `message` is a sentence beside its field, `line` one that names the file as well."""

    key: Key
    message: str
    line: str


def wrong_settings(problems: Sequence[Problem]) -> WrongSettings:
    """Return the error that tells all problems, a line each."""
    return WrongSettings(
        "\n".join(problem.line for problem in problems),
        [(key_text(problem.key), problem.message) for problem in problems],
    )
