"""Text as it can stand in a log: one line, with nothing in it that moves a cursor or turns the writing round."""

from typing import Final

LONGEST: Final = 4000
"""Characters of a message; a longer one is cut."""


def escaped(text: str) -> str:
    """Return the text with every character that cannot be printed written out, such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in text
    )


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the text, cut where it is too long."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text) - longest} characters more)"
