"""Where a streaming answer may be cut, how its continuation is joined to it, and the notices that stand between."""

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from elbowroom.caches import HISTORIES
from elbowroom.context.transcript import Message, is_text, says_nothing, text_of
from elbowroom.tokens.count import MOST_LETTERS, left_of

ABBREVIATED = {
    "English": (
        "e.g i.e etc vs cf viz approx ca c al resp incl est dept fig figs eq ref sec ch vol ed eds p pp no nos mr mrs "
        "ms dr prof st jr sr inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat"
    ),
    "German": (
        "z.b d.h u.a u.u s.o s.u o.ä i.d.r bzw usw evtl ggf inkl zzgl abs art aufl bd hr fr nr str tel vgl mind max min"
    ),
    "French and Spanish": "p.ex mme mm sra srta ud núm pág",
}
ABBREVIATIONS = frozenset(word for words in ABBREVIATED.values() for word in words.split())
SENTENCE_END = re.compile(
    r"(?<![.!?…؟।])(?P<marks>[.!?…؟।]++)[\"'”’»)\]*_`]{0,4}[ \t]++(?=\S)"
    r"|(?<![。！？｡])[。！？｡]++[」』）】”’\"')*_]{0,4}[ \t\u3000]*+(?=[^\s」』）】”’])"
)
FENCE = re.compile(r"[ \t>]*+(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n]*)")
BLANK_LINES = re.compile(r"(?:[ \t\r]*+\n)*+")
BLANKS = re.compile(r"\s++")
LONGEST_WORD = 32
"""Characters that are waited for at most until a word ends."""
LONGEST_CONTEXT = 200
LEAST_OVERLAP = 12
LEAST_WORDS = 4
LONGEST_REPEAT = 2000
LEAST_ANEW = 48
"""Characters of an answer's beginning by which a continuation shows that it begins anew."""
LEAST_LENGTHS = 6
"""How many times as long as that an answer has to be, so that its end cannot be taken for its beginning."""
LONGEST_PREAMBLE = 160
LEAST_AFTER_PREAMBLE = 24
PREAMBLE_OPENINGS = ("sure", "certainly", "of course", "ok", "alright", "continuing", "here is", "here's", "picking up")
PREAMBLE = re.compile(
    r"[^\n]{0,110}?\b(?:continu|left off|rest of|pick(?:ing)? up)[^\n:]{0,60}(?::|\n)\s*+", re.IGNORECASE
)

CONTINUE = (
    "Your last message was interrupted for technical reasons. Continue it exactly where it stopped: your first "
    "character has to be the one that comes next. Do not repeat anything, do not begin anew, and say nothing about "
    "the interruption."
)
GO_ON_AT_THE_END = (
    "Stop: you have begun your message anew. All of it up to the following words is written already and must not be "
    "written again:\n\n<end>\n{end}\n</end>\n\nWrite nothing but what comes after these words, beginning with the very "
    "next character."
)
LONGEST_END = 200
THINK_ON = (
    "Your thinking about this was interrupted for technical reasons. It ended like this:\n\n<thoughts>\n{thoughts}\n"
    "</thoughts>\n\nTake up the thought where it ended, finish it shortly, and answer."
)

MARK = "> *elbowroom: "
LINE = r"> \*elbowroom: [^\n]*\*"
LINES = re.compile(rf"(?:\A|\n\n){LINE}(?:\n\n(?:\n\n)?{LINE})*(?:\n\n|\s*\Z)")
"""One notice or several in a row, with the blank lines around them."""
FORGET = "/forget"
COMMANDS = ("/compact", "/tidy", FORGET)
"""The first is one of Open WebUI and of coding agents too, which keep it for themselves; the second is nobody's."""
LONGEST_FOCUS = 500
"""Characters that may follow a command; a longer message is none."""


class StopFinder:
    """Finds the places in a streaming answer where it may be cut and continued later.

    A good place is after a line end, or before the first character of a new sentence. Within a code fence only line
    ends count. `said` is the part of the answer that has already come.
    """

    def __init__(self, said: str = "") -> None:
        self._fence = ""
        self._head = ""
        self._line = ""
        self._waited = 0
        self.places(said)

    def feed(self, delta: str) -> int | None:
        """Return after how many characters of this delta the answer may be cut; None if nowhere within it.

        0 means before the delta, which shows that a sentence had ended.
        """
        places = self.places(delta)
        if not places:
            return None
        blank = BLANK_LINES.match(delta, places[0])
        return blank.end() if blank else places[0]

    def end_of_word(self, delta: str, *, waits: bool) -> int | None:
        """Return after how many characters of this delta, which has no good place, the answer is cut by force.

        That is where the next word can begin: a model that goes on within a word, or before a blank, loses letters or
        the blank. None where it `waits` for a word that may end soon.
        """
        self._waited += len(delta)
        if blanks := BLANKS.search(delta):
            return blanks.end()
        return None if waits and self._waited <= LONGEST_WORD else len(delta)

    def places(self, delta: str) -> list[int]:
        """Return every good place in this delta, each as a number of its characters."""
        found: list[int] = []
        start = 0
        while start < len(delta):
            line_end = delta.find("\n", start)
            end = len(delta) if line_end == -1 else line_end + 1
            found += [start + place for place in self._read(delta[start:end])]
            start = end
        return found

    def _read(self, piece: str) -> list[int]:
        """Read on within one line; return the good places in the piece."""
        known = len(self._line)
        self._line += piece
        self._head = (self._head + piece)[:LONGEST_CONTEXT]
        fence = FENCE.match(self._head)
        places: list[int] = []
        if not self._fence and not fence:
            places = [end.end() - known for end in SENTENCE_END.finditer(self._line) if _is_sentence_end(end)]
            places = [place for place in places if place >= 0]
        if piece.endswith("\n"):
            places.append(len(piece))
            self._fence = _fence_after(self._fence, fence)
            self._head = self._line = ""
        self._line = self._line[-LONGEST_CONTEXT:]
        return places


def _is_sentence_end(end: re.Match[str]) -> bool:
    """Tell a sentence's end from an abbreviation, an initial, an ordinal or the number of a list."""
    if end["marks"] is None:
        return True
    following = end.string[end.end()]
    if following.islower() or following in ",;:)]":
        return False
    if end["marks"] != ".":
        return True
    before = re.search(r"[\w.]*$", end.string[max(0, end.start() - 20) : end.start()])
    word = before[0].casefold().rstrip(".") if before else ""
    letters = word.rpartition(".")[2]
    if letters.isdecimal():
        return len(letters) > 2
    if not letters:
        return end.start() > 0 and not end.string[end.start() - 1].isspace()
    return word not in ABBREVIATIONS and not (len(letters) == 1 and letters.isascii())


def _fence_after(fence: str, line: re.Match[str] | None) -> str:
    """Return the code fence that is open after a line, given the one before it and the fence in the line."""
    if line is None:
        return fence
    marker, info = line["fence"], line["info"].strip()
    if not fence:
        return "" if marker.startswith("`") and "`" in info else marker
    return "" if marker.startswith(fence) and not info else fence


class _TooEarly(Exception):
    """More text has to come before the joint is clear."""


class Continuation:
    """Joins the text that a model writes after "continue exactly where you stopped" to the end of its answer.

    Text is held back while it may still repeat that end. A repetition of at least 12 characters is dropped, white space
    at the joint aside, with a sentence such as "Sure, continuing:" before it. Shorter ones may be chance and stay, and
    after the joint everything passes untouched. A repetition longer than the last 2,000 characters is not recognised.

    Where the new text `begins_anew`, with the answer's first words in place of its last, none of it is passed on.
    """

    def __init__(self, whole: str) -> None:
        self.begins_anew = False
        self._beginning = _first_words(whole)
        said = whole[-LONGEST_REPEAT:]
        self._said = said.rstrip()
        self._space = said[len(self._said) :]
        self._held = ""
        self._is_joined = False

    def feed(self, text: str) -> str:
        """Take in more of the new text; return the part that may be passed on now."""
        if self._is_joined:
            return text
        self._held += text
        return "" if self._repeats_beginning() else self._joined(is_end=False)

    def end(self) -> str:
        """Return the text that is still held back: no more comes."""
        return "" if self._is_joined else self._joined(is_end=True)

    def _repeats_beginning(self) -> bool:
        """Tell whether what has come is the answer's beginning, or may still become it."""
        text = self._held.lstrip()
        preamble = PREAMBLE.match(text)
        new = text[preamble.end() :] if preamble is not None else text
        self.begins_anew = bool(self._beginning) and new.startswith(self._beginning)
        return self.begins_anew or (bool(self._beginning) and self._beginning.startswith(new))

    def _joined(self, *, is_end: bool) -> str:
        try:
            rest = self._after_overlap(self._held, LEAST_OVERLAP, is_end=is_end)
            if rest is None:
                rest = self._after_preamble(is_end=is_end)
        except _TooEarly:
            return ""
        self._is_joined = True
        return self._held if rest is None else rest

    def _after_preamble(self, *, is_end: bool) -> str | None:
        """Return the text after a preamble and a repetition; None without the repetition, which alone proves it one."""
        text = self._held.lstrip()
        if not any(text[: len(opening)].casefold() == opening[: len(text)] for opening in PREAMBLE_OPENINGS):
            return None
        preamble = PREAMBLE.match(text)
        if preamble is None:
            if is_end or len(text) > LONGEST_PREAMBLE or "\n" in text:
                return None
            raise _TooEarly
        return self._after_overlap(text[preamble.end() :], LEAST_AFTER_PREAMBLE, is_end=is_end)

    def _after_overlap(self, new: str, least: int, *, is_end: bool) -> str | None:
        """Return the new text without the part that it repeats, None if it repeats nothing."""
        text = new.lstrip()
        place = self._said.find(text)
        if not is_end and -1 < place < len(self._said) - len(text):
            raise _TooEarly
        for length in range(min(len(text), len(self._said)), LEAST_WORDS - 1, -1):
            if not self._said.endswith(text[:length]):
                continue
            if self._said[:-length].rstrip().endswith(text[:length].rstrip()):
                return None  # the text itself says this again and again, as rows of a table do
            rest = text[length:]
            if not is_end and len(rest) < len(self._space) and self._space.startswith(rest):
                raise _TooEarly
            if self._repeated(new[: len(new) - len(text)], length, rest) >= least:
                return rest[_common(rest, self._space) :]
        return None

    def _repeated(self, lead: str, length: int, rest: str) -> int:
        """Return the length of the repetition together with the white space before and after it."""
        before = self._said[: len(self._said) - length]
        after = len(self._space) if rest.startswith(self._space) else 0
        return length + after + (len(lead) if before.endswith(lead) else 0)


def _first_words(whole: str) -> str:
    """Return the first words of an answer, by which they are known where they come again.

    There are none where the answer is short, or says them again by itself as a song does.
    """
    beginning = whole.lstrip()[:LEAST_ANEW]
    is_long = len(whole) >= LEAST_LENGTHS * LEAST_ANEW
    return beginning if is_long and whole.count(beginning) == 1 else ""


def _common(one: str, other: str) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def notice_line(text: str) -> str:
    """Return a notice as a line that readers can tell from the answer, and that `without_notices` finds."""
    return f"\n\n> *elbowroom: {' '.join(text.split()).replace('*', '')}*\n\n"


def without_notices(messages: Sequence[Message]) -> list[Message]:
    """Return a history without the notices that a client has sent back as words of the assistant.

    A person's command that was answered by nothing but notices is left out with its answer, and so is a command that
    was not answered at all.
    """
    history = HISTORIES.of(messages)
    stripped = history.each(_stripped)
    places = [*compress(range(len(stripped) - 1), history.each(command_in))]
    if not places:
        return stripped
    answers = {at + 1 for at in places if says_nothing(stripped[at + 1])}
    commands = {at for at in places if at + 1 in answers or stripped[at + 1].get("role") == "user"}
    left_out = answers | commands
    return [each for at, each in enumerate(stripped) if at not in left_out]


def command_in(message: Message) -> tuple[str, str] | None:
    """Return a person's command and what it says of what it is for, empty without that; None for other messages."""
    content = message.get("content")
    if message.get("role") != "user" or (isinstance(content, list) and not all(map(is_text, content))):
        return None
    if len(content) >= MOST_LETTERS if isinstance(content, str) else left_of(MOST_LETTERS, content) <= 0:
        return None  # no command is so long, and to read it would hold up the event loop
    text = content if isinstance(content, str) else text_of(message)
    if not text.lstrip().startswith(COMMANDS):
        return None
    command, *focus = text.split(maxsplit=1)
    told = " ".join(" ".join(focus).split())
    return (command, told) if command in COMMANDS and len(told) <= LONGEST_FOCUS else None


def _stripped(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") != "assistant" or (isinstance(content, str) and MARK not in content):
        return message
    without = [_without(part) for part in content] if isinstance(content, list) else _without(content)
    return message if without == content else {**message, "content": without}


def _without(part: Any) -> Any:
    """Return a text or a text part without notices, and any other part as it is."""
    if isinstance(part, Mapping) and is_text(part):
        return {**part, "text": _without(part["text"])}
    if not isinstance(part, str) or MARK not in part:
        return part
    return LINES.sub("", part)
