"""Keeps an answer's text from making clients fetch anything by themselves: an image's address can carry secrets away.

What a model has read, a note or a page, may talk it into writing an image whose address contains what else it knows. A
client that shows the image sends that address to whoever waits for it; as a link it is sent when somebody clicks.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from elbowroom.context.image_openings import Opening, leads_elsewhere, opening
from elbowroom.context.remote_tags import tag_fetches

MOST_HELD: Final = 1000
"""Characters: what is not clear after so many is taken for a remote image."""
MOST_LABELS: Final = 1000
BEGINNING: Final = re.compile(r"!(?=\[|\Z)|<(?=[A-Za-z]|\Z)|\](?=:|\Z)")
ALONE: Final = {"<": "&lt;"}
"""What is shown in place of the beginning of a tag behind which the text was cut."""
JOINTS: Final = {"![": " ", "]:": "\\"}
"""What is put between two characters that would begin something together, where the text was cut between them."""
LABEL_START: Final = re.compile(r"(?<!\\)(?:\\\\)*\[")


@dataclass(frozen=True, slots=True)
class Piece:
    """The next `length` characters of a text, and what stands for them."""

    length: int
    text: str


class ImageGuard:
    """Turns remote images in a text that comes in pieces into links and plain text; all else passes as it is.

    `![plan](http://...)` becomes `[image: plan](http://...)`, with a reference `[image: plan][1]`, and `<img ...>`
    becomes `&lt;img ...>`, as do other tags that fetch something. Images with relative addresses, `data:`, and
    Obsidian's `![[embeds]]` stay. What is in code is changed as well, and what stands behind a backslash: programs do
    not agree on what is code.

    It holds back what may begin an image until that is clear, at most `MOST_HELD` characters. It does not know style
    sheets, scripts, or programs that fetch what a plain link leads to.
    """

    def __init__(self) -> None:
        self._before = ""
        self._held = ""
        self._must_tell = False
        self._images, self._addresses = Labels(), Labels()

    def feed(self, text: str) -> str:
        """Take the next piece and return what can be shown by now."""
        joint = "" if self._held else JOINTS.get(self._before[-1:] + text[:1], "")
        self._before += joint
        if not self._held and not BEGINNING.search(text):
            self._before = (self._before + text)[-MOST_HELD:]
            return joint + text
        self._held += text
        return joint + self._passed(is_whole=False)

    def end(self) -> str:
        """Return what has been held back; if there is more, it begins another paragraph."""
        rest = self._passed(is_whole=True)
        self._before += "\n\n"
        return rest

    def cut(self) -> str:
        """Return what has been held back where the text goes on later, in the middle of a word even.

        What is not clear by now is taken for a remote image.
        """
        self._must_tell = True
        try:
            return self._passed(is_whole=False)
        finally:
            self._must_tell = False

    @property
    def held(self) -> str:
        """Return what is held back now."""
        return self._held

    def drop(self) -> None:
        """Forget what has been held back: nobody is to see it."""
        self._held = ""

    def _passed(self, *, is_whole: bool) -> str:
        text, at = self._held, 0
        out: list[str] = []
        while found := BEGINNING.search(text, at):
            out.append(text[at : found.start()])
            at = found.start()
            if (piece := self._piece(text, at, is_whole=is_whole)) is None:
                break
            out.append(piece.text)
            at += piece.length
        else:
            out.append(text[at:])
            at = len(text)
        self._before = self._text_before(text, at)
        self._held = text[at:]
        return "".join(out)

    def _piece(self, text: str, at: int, *, is_whole: bool) -> Piece | None:
        """Return what to do with what may begin at a place, None where more text is needed."""
        window, before = text[at : at + MOST_HELD], self._text_before(text, at)
        is_full = len(window) == MOST_HELD
        is_known = is_whole and not is_full
        must_tell = is_full or self._must_tell
        if len(window) == 1:
            return Piece(1, window) if is_known else Piece(1, ALONE.get(window, window)) if must_tell else None
        match window[0]:
            case "!":
                found = opening(window[2:], is_whole=is_known) or (Opening(is_remote=True) if must_tell else None)
                return None if found is None else self._image(found, before)
            case "<":
                fetches = tag_fetches(window, is_whole=is_known)
                return None if fetches is None and not must_tell else Piece(1, "<" if fetches is False else "&lt;")
            case _:
                remote = leads_elsewhere(window, 2, is_whole=is_known)
                return (
                    None if remote is None and not must_tell else self._address(before, is_remote=remote is not False)
                )

    def _image(self, found: Opening, before: str) -> Piece:
        if not found.is_remote and not any(label in self._addresses for label in found.labels):
            for label in found.labels:
                self._images.add(label)
            return Piece(2, "![")
        between = " " if before.endswith(("!", "]")) else ""  # with these it would be an image again
        return Piece(2, between + ("image: [" if found.is_short else "[image: "))

    def _address(self, before: str, *, is_remote: bool) -> Piece:
        """Return what becomes of the end of a reference's label, behind which its address stands."""
        starts = [start.end() for start in LABEL_START.finditer(before)]
        if not is_remote or (not starts and len(before) < MOST_HELD):
            return Piece(1, "]")
        label = before[starts[-1] :] if starts else None
        if label in self._images:
            return Piece(2, "]\\:")
        self._addresses.add(label)
        return Piece(1, "]")

    def _text_before(self, text: str, at: int) -> str:
        return text[at - MOST_HELD : at] if at >= MOST_HELD else (self._before + text[:at])[-MOST_HELD:]


class Labels:
    """Labels of references, within bounds: beyond them, every label counts as one of these."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._is_full = False

    def add(self, label: str | None) -> None:
        """Add a label; None is one that is not known."""
        if label is None or len(self._keys) >= MOST_LABELS:
            self._is_full = True
        else:
            self._keys.add(_key(label))

    def __contains__(self, label: str | None) -> bool:
        if self._is_full:
            return True
        return bool(self._keys) if label is None else _key(label) in self._keys


def _key(label: str) -> str:
    """Return what two labels have in common that some program might take for the same."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", label).casefold() if letter.isalnum())
