"""Reads what stands behind the `![` that may begin an image in Markdown, as far as it is there already.

Programs differ in what they take for an image. Where its text holds code, tags or brackets that do not pair, more than
one place may be its end: then each of them counts.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from elbowroom.context.remote_address import is_remote

MARK: Final = re.compile(r"\\[\s\S]|`+|[\[\]]|<(?=[A-Za-z/!?])|\n[ \t>]*\n")
"""What counts in an image's text: escapes, code, brackets, tags, and the blank line that ends its paragraph."""
MOST_MARKS: Final = 100
"""What is not clear after so many is taken for a remote image."""
LABEL: Final = re.compile(r"\[((?:\\[\s\S]|[^\]\\])*)\]")
BEFORE_ADDRESS: Final = re.compile(r"[\s>]*")
BLANK_LINE: Final = re.compile(r"\n[ \t>]*\n")
ADDRESS: Final = re.compile(r"<(?P<angles>[^>\n]*)|(?P<bare>[^\s)>]*)")


@dataclass(frozen=True, slots=True)
class Opening:
    """What may be an image: whether its own address is remote, else by which labels its address may be found.

    `is_short` says that its text itself is the label.
    """

    is_remote: bool = False
    labels: tuple[str, ...] = ()
    is_short: bool = False


def opening(text: str, *, is_whole: bool) -> Opening | None:
    """Return what the text behind `![` makes of it, None where more text is needed."""
    return _Reading(text, is_whole).result()


def leads_elsewhere(text: str, at: int, *, is_whole: bool) -> bool | None:
    """Tell whether there is a remote address at a place, behind white space; None where more text is needed."""
    before = BEFORE_ADDRESS.match(text, at)
    begin = before.end() if before else at
    if BLANK_LINE.search(text, at, begin):
        return False
    if begin == len(text):
        return False if is_whole else None
    found = ADDRESS.match(text, begin)
    if found is None:
        return False
    written = found["angles"] if found["angles"] is not None else found["bare"]
    return is_remote(written, is_whole=is_whole or found.end() < len(text))


@dataclass(slots=True)
class _Reading:
    text: str
    is_whole: bool
    labels: list[str] = field(default_factory=list)
    depth: int = 1
    code: str = ""
    has_tag: bool = False
    is_short: bool = False

    def result(self) -> Opening | None:
        for number, mark in enumerate(MARK.finditer(self.text)):
            found = mark[0]
            if number == MOST_MARKS:
                return self._ended(is_remote=True)
            if found == "]":
                self.depth -= 1
            if found in ("]", "\\]"):
                if mark.end() == len(self.text) and not self.is_whole:
                    return None
                ended = self._closed(mark)
                if ended is None or ended.is_remote:
                    return ended
                if self.depth <= 0 and not self.code and not self.has_tag:
                    return ended
            elif found[0] == "\n":
                return self._ended()
            else:
                self._take(found)
        return self._ended() if self.is_whole else None

    def _take(self, found: str) -> None:
        """Take in what may keep a bracket from being the end."""
        if found == "[":
            self.depth += 1
        elif found == "<":
            self.has_tag = True
        elif found[0] == "`":
            self.code = "" if found == self.code else self.code or found

    def _closed(self, mark: "re.Match[str]") -> Opening | None:
        """Return what the image is if it ends with this bracket, None where more text is needed."""
        behind = self.text[mark.end() : mark.end() + 1]
        if behind == "(":
            remote = leads_elsewhere(self.text, mark.end() + 1, is_whole=self.is_whole)
            return None if remote is None else self._ended(is_remote=remote)
        if self.depth <= 0:
            self.labels.append(self.text[: mark.start()])
            label = LABEL.match(self.text, mark.end())
            if behind == "[" and label is None and not self.is_whole:
                return None
            if label and label[1]:
                self.labels.append(label[1])
            self.is_short = not (label and label[1])
        return self._ended()

    def _ended(self, *, is_remote: bool = False) -> Opening:
        return Opening(is_remote, tuple(self.labels), self.is_short and not is_remote)
