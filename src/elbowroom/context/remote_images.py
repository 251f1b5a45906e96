"""Keeps a client from fetching what an answer's text names: the address of an image can carry secrets away.

A note or a page that a model has read may talk it into writing an image whose address contains what else it knows. A
client that shows the image sends that address away at once; a link is followed only when somebody clicks it.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from html import unescape
from typing import Final

MARK: Final = re.compile(r"\\[\s\S]|`+|[\[\]]|<(?=[A-Za-z/!?])|\n[ \t>]*\n")
"""What matters in an image's text: escapes, code, brackets, tags, and the blank line that ends its paragraph."""
MOST_MARKS: Final = 100
"""A text that is not clear after so many marks is taken for a remote image."""
LABEL: Final = re.compile(r"\[((?:\\[\s\S]|[^\]\\])*)\]")
BEFORE_ADDRESS: Final = re.compile(r"[\s>]*")
BLANK_QUOTED_LINE: Final = re.compile(r"\n[ \t>]*\n")
ADDRESS: Final = re.compile(r"<(?P<angles>[^>\n]*)|(?P<bare>[^\s)>]*)")

MOST_HELD: Final = 1000
"""A text that is not clear after so many characters is taken for a remote image."""
MOST_LABELS: Final = 1000
BEGINNING: Final = re.compile(r"!(?=\[|\Z)|<(?=[A-Za-z]|\Z)|\](?=:|\Z)")
ALONE: Final = {"<": "&lt;"}
"""Shown in place of the beginning of a tag after which the text was cut."""
JOINTS: Final = {"![": " ", "]:": "\\"}
"""Put between two characters that would begin something together, where the text was cut between them."""
LABEL_START: Final = re.compile(r"(?<!\\)(?:\\\\)*\[")

PICTURES: Final = frozenset(
    {"img", "image", "feimage", "use", "source", "input", "body", "table", "tbody", "tr", "th", "td"}
)
OTHERS: Final = frozenset({"audio", "video", "track", "embed", "object", "frame", "iframe", "link", "base"})
TAGS: Final = PICTURES | OTHERS
"""Tags that show something by themselves, or change where relative addresses lead."""
ADDRESSES: Final = frozenset(["background", "data", "dynsrc", "href", "lowsrc", "poster", "src", "xlink:href"])
LISTS_OF_ADDRESSES: Final = frozenset({"srcset", "imagesrcset"})
TAG_NAME: Final = re.compile(r"<([A-Za-z]*)")
ENDS_NAME: Final = frozenset("\t\n\f\r />")
BETWEEN: Final = re.compile(r"[\t\n\f\r /]*")
ATTRIBUTE: Final = re.compile(r"=?[^\t\n\f\r />=]*")
EQUALS: Final = re.compile(r"[\t\n\f\r ]*(?:(=)[\t\n\f\r ]*)?")
VALUE: Final = re.compile(r"\"(?P<double>[^\"]*)(?P<end>\"?)|'(?P<single>[^']*)(?P<stop>'?)|(?P<bare>[^\t\n\f\r >]*)")
BECOMES_LINK: Final = re.compile(r"<|\]\(|^(?:https?|ftp):|^www\.", re.IGNORECASE)
"""Text that programs may make a link of, not seeing that it is in a tag: then the tag has that link's address."""
BETWEEN_ADDRESSES: Final = re.compile(r"[\s,]+")
STYLE_FETCHES: Final = re.compile(r"(?:url|src|image|image-set|cross-fade)\s*\(|[\\&]", re.IGNORECASE)
QUOTE_MARKS: Final = re.compile(r"(?<=[\n\r])[ \t>]*>")
"""The marks before the lines of a quotation in Markdown, which are no part of a tag that goes on there."""
BLANK_LINE: Final = re.compile(r"\n[ \t]*\n")

HARMLESS: Final = frozenset({"data", "blob", "app"})
"""Schemes whose content is in the address itself or in the program that shows it."""
SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):")
MAY_BE_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*|/?")
LOCAL_FILE: Final = re.compile(r"file:///[^/]")
BEGINS_FILE: Final = re.compile(r"file:/{0,3}")
IGNORED: Final = re.compile(r"\A[^\x21-\x7e]+|[\x00-\x20]+")
"""Characters that browsers ignore in addresses, and more of them at their beginning."""
BACKSLASH: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
UNFINISHED: Final = re.compile(r"(?:\\|&[#\w]{0,40})\Z")
"""The beginning of an escape, whose meaning depends on what follows."""


@dataclass(frozen=True, slots=True)
class _Opening:
    """A possible image: whether its own address is remote, else the labels under which its address may be found.

    `is_short` says that its text itself is the label.
    """

    is_remote: bool = False
    labels: tuple[str, ...] = ()
    is_short: bool = False


@dataclass(slots=True)
class _Reading:
    """Reads the text after `![` up to the bracket that ends it."""

    text: str
    is_whole: bool
    labels: list[str] = field(default_factory=list)
    depth: int = 1
    code: str = ""
    has_tag: bool = False
    is_short: bool = False

    def result(self) -> _Opening | None:
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
        """Take in a mark that may keep a bracket from being the end."""
        if found == "[":
            self.depth += 1
        elif found == "<":
            self.has_tag = True
        elif found[0] == "`":
            self.code = "" if found == self.code else self.code or found

    def _closed(self, mark: "re.Match[str]") -> _Opening | None:
        """Return the image that ends with this bracket, None where more text is needed."""
        following = self.text[mark.end() : mark.end() + 1]
        if following == "(":
            remote = _remote_address_at(self.text, mark.end() + 1, is_whole=self.is_whole)
            return None if remote is None else self._ended(is_remote=remote)
        if self.depth <= 0:
            self.labels.append(self.text[: mark.start()])
            label = LABEL.match(self.text, mark.end())
            if following == "[" and label is None and not self.is_whole:
                return None
            if label and label[1]:
                self.labels.append(label[1])
            self.is_short = not (label and label[1])
        return self._ended()

    def _ended(self, *, is_remote: bool = False) -> _Opening:
        return _Opening(is_remote, tuple(self.labels), self.is_short and not is_remote)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The next `length` characters of a text, and the text in their place."""

    length: int
    text: str


class ImageGuard:
    """Turns remote images in a text that comes in pieces into links and plain text; everything else passes unchanged.

    `![plan](http://...)` becomes `[image: plan](http://...)`, with a reference `[image: plan][1]`, and `<img ...>`
    becomes `&lt;img ...>`, as do other tags that fetch something. Images with relative addresses, `data:`, and
    Obsidian's `![[embeds]]` stay. Text in code is changed as well, and text after a backslash: programs do not agree on
    what is code.

    It holds back text that may begin an image until that is clear, at most `MOST_HELD` characters. It does not know
    style sheets, scripts, or programs that fetch the target of a plain link.
    """

    def __init__(self) -> None:
        self._before = ""
        self._held = ""
        self._must_tell = False
        self._images, self._addresses = _Labels(), _Labels()

    def feed(self, text: str) -> str:
        """Take the next piece and return the text that can be shown by now."""
        joint = "" if self._held else JOINTS.get(self._before[-1:] + text[:1], "")
        self._before += joint
        if not self._held and not BEGINNING.search(text):
            self._before = (self._before + text)[-MOST_HELD:]
            return joint + text
        self._held += text
        return joint + self._passed(is_whole=False)

    def end(self) -> str:
        """Return the text held back; more text begins another paragraph."""
        rest = self._passed(is_whole=True)
        self._before += "\n\n"
        return rest

    def cut(self) -> str:
        """Return the text held back where the text is continued later, even in the middle of a word.

        Anything that is not clear by now is taken for a remote image.
        """
        self._must_tell = True
        try:
            return self._passed(is_whole=False)
        finally:
            self._must_tell = False

    @property
    def held(self) -> str:
        """Return the text held back now."""
        return self._held

    def drop(self) -> None:
        """Forget the text held back: nobody is to see it."""
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

    def _piece(self, text: str, at: int, *, is_whole: bool) -> _Piece | None:
        """Return the text for what may begin at a place, None where more text is needed."""
        window, before = text[at : at + MOST_HELD], self._text_before(text, at)
        is_full = len(window) == MOST_HELD
        is_known = is_whole and not is_full
        must_tell = is_full or self._must_tell
        if len(window) == 1:
            return _Piece(1, window) if is_known else _Piece(1, ALONE.get(window, window)) if must_tell else None
        match window[0]:
            case "!":
                found = _Reading(window[2:], is_known).result() or (_Opening(is_remote=True) if must_tell else None)
                return None if found is None else self._image(found, before)
            case "<":
                fetches = _tag_fetches(window, is_whole=is_known)
                return None if fetches is None and not must_tell else _Piece(1, "<" if fetches is False else "&lt;")
            case _:
                remote = _remote_address_at(window, 2, is_whole=is_known)
                return (
                    None if remote is None and not must_tell else self._address(before, is_remote=remote is not False)
                )

    def _image(self, found: _Opening, before: str) -> _Piece:
        if not found.is_remote and not any(label in self._addresses for label in found.labels):
            for label in found.labels:
                self._images.add(label)
            return _Piece(2, "![")
        between = " " if before.endswith(("!", "]")) else ""  # with these it would be an image again
        return _Piece(2, between + ("image: [" if found.is_short else "[image: "))

    def _address(self, before: str, *, is_remote: bool) -> _Piece:
        """Return the text for the end of a reference's label, after which its address stands."""
        starts = [start.end() for start in LABEL_START.finditer(before)]
        if not is_remote or (not starts and len(before) < MOST_HELD):
            return _Piece(1, "]")
        label = before[starts[-1] :] if starts else None
        if label in self._images:
            return _Piece(2, "]\\:")
        self._addresses.add(label)
        return _Piece(1, "]")

    def _text_before(self, text: str, at: int) -> str:
        return text[at - MOST_HELD : at] if at >= MOST_HELD else (self._before + text[:at])[-MOST_HELD:]


class _Labels:
    """Labels of references, within bounds: beyond them, every label counts as one of these."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._is_full = False

    def add(self, label: str | None) -> None:
        """Add a label; None is an unknown one."""
        if label is None or len(self._keys) >= MOST_LABELS:
            self._is_full = True
        else:
            self._keys.add(_key(label))

    def __contains__(self, label: str | None) -> bool:
        if self._is_full:
            return True
        return bool(self._keys) if label is None else _key(label) in self._keys


def _key(label: str) -> str:
    """Return a key that is equal for all labels that some program might take for the same."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", label).casefold() if letter.isalnum())


def _tag_fetches(text: str, *, is_whole: bool) -> bool | None:
    """Tell whether the tag at the beginning of a text fetches anything; None where more text is needed."""
    name = TAG_NAME.match(text)
    if name is None:
        return False
    if name.end() == len(text):
        return None if not is_whole and any(tag.startswith(name[1].lower()) for tag in TAGS) else False
    if name[1].lower() not in TAGS or text[name.end()] not in ENDS_NAME:
        return False
    attributes = text[name.end() :]
    found = {_attributes_fetch(attributes, is_whole=is_whole), _quoted_fetches(attributes, is_whole=is_whole)}
    return True if True in found else None if None in found else False


def _quoted_fetches(text: str, *, is_whole: bool) -> bool | None:
    """Tell the same for a tag within a quotation, which ends with a blank line."""
    if end := BLANK_LINE.search(text):
        text, is_whole = text[: end.start()], True
    return _attributes_fetch(QUOTE_MARKS.sub(" ", text), is_whole=is_whole)


def _attributes_fetch(text: str, *, is_whole: bool) -> bool | None:
    """Tell whether an attribute at the beginning of a text, up to the tag's end, fetches something."""
    at = _end(BETWEEN, text, 0)
    while at < len(text) and text[at] != ">":
        name_end = _end(ATTRIBUTE, text, at)
        name = text[at:name_end].lower()
        if BECOMES_LINK.search(name):
            return True
        at = _end(EQUALS, text, name_end)
        if "=" in text[name_end:at] and (value := VALUE.match(text, at)):
            at = value.end()
            is_closed = is_whole or at < len(text) or bool(value["end"] or value["stop"])
            if BECOMES_LINK.search(value["bare"] or ""):
                return True
            written = value["double"] or value["single"] or value["bare"] or ""
            if (fetches := _fetches(name, written, is_whole=is_closed)) is not False:
                return fetches
        at = _end(BETWEEN, text, at)
    return False if is_whole or at < len(text) else None


def _fetches(name: str, value: str, *, is_whole: bool) -> bool | None:
    if name in ADDRESSES:
        return is_remote(value, is_whole=is_whole)
    if name in LISTS_OF_ADDRESSES:
        *before, last = BETWEEN_ADDRESSES.split(value)
        return any(map(is_remote, before)) or is_remote(last, is_whole=is_whole)
    if name == "style":
        return STYLE_FETCHES.search(value) is not None
    return name == "srcdoc" and bool(value)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _remote_address_at(text: str, at: int, *, is_whole: bool) -> bool | None:
    """Tell whether a remote address follows a place, white space aside; None where more text is needed."""
    before = BEFORE_ADDRESS.match(text, at)
    begin = before.end() if before else at
    if BLANK_QUOTED_LINE.search(text, at, begin):
        return False
    if begin == len(text):
        return False if is_whole else None
    found = ADDRESS.match(text, begin)
    if found is None:
        return False
    written = found["angles"] if found["angles"] is not None else found["bare"]
    return is_remote(written, is_whole=is_whole or found.end() < len(text))


def is_remote(written: str, *, is_whole: bool = True) -> bool | None:
    """Tell whether an address, as written in Markdown or HTML, is remote; None where its end is needed to tell.

    A backslash is read as an escape and as a slash, since programs do either. More text after the beginning of an
    address never changes an answer that is not None.
    """
    if not is_whole:
        written = UNFINISHED.sub("", written)
    bare = BACKSLASH.sub(r"\1", written)
    if not is_whole:
        bare = UNFINISHED.sub("", bare)
    found = [_is_remote_form(form, is_whole) for form in {unescape(written), unescape(bare)}]
    return True if True in found else None if None in found else False


def _is_remote_form(address: str, is_whole: bool) -> bool | None:
    address = IGNORED.sub("", address).replace("\\", "/").lower()
    if address.startswith("//"):
        return True
    if scheme := SCHEME.match(address):
        if scheme[1] == "file":
            return _is_on_other_machine(address, is_whole)
        return len(scheme[1]) > 1 and scheme[1] not in HARMLESS  # a single letter is a drive
    if not is_whole and MAY_BE_SCHEME.fullmatch(address):
        return None
    return False


def _is_on_other_machine(address: str, is_whole: bool) -> bool | None:
    if LOCAL_FILE.match(address):
        return False
    return None if not is_whole and BEGINS_FILE.fullmatch(address) else True
