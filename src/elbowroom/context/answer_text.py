"""The spoken part of an answer without the thinking before it, and its sections where it has tags or headings."""

import re
from dataclasses import dataclass

OPENING = re.compile(r"\s*+(?:<(think|thinking|thought|reasoning|seed:think)>|\[(THINK)\]|◁(think)▷)", re.IGNORECASE)
CLOSING = re.compile(r"</(think|thinking|thought|reasoning|seed:think)>|\[/(THINK)\]|◁/(think)▷", re.IGNORECASE)
CHANNEL = re.compile(r"<\|channel\|>(\w{1,20})[^<]{0,40}<\|message\|>")
SPECIAL_TOKENS = re.compile(r"(?:<\|[\w ]{1,40}\|>|</s>|<(?:end_of_turn|eos)>)")
TAG = re.compile(r"<(/?)(retain|summary|keep)(?:\s[^<>]{0,100})?>", re.IGNORECASE)
NAMES = {
    "retain": "retain",
    "retained": "retain",
    "what must hold": "retain",
    "summary": "summary",
    "what happened": "summary",
    "zusammenfassung": "summary",
    "résumé": "summary",
    "resumen": "summary",
    "resumo": "summary",
    "riassunto": "summary",
    "要約": "summary",
    "总结": "summary",
    "摘要": "summary",
    "keep": "keep",
}
HEADING = re.compile(
    rf"^[ \t]{{0,3}}(?P<mark>#{{1,6}}[ \t]*|\*\*|__)?(?:\d[.)][ \t]*)?(?P<name>{'|'.join(sorted(NAMES, reverse=True))})"
    r"(?!\w)(?P<end>[ \t:：*_]{0,8})(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
SENTENCE_ENDS = tuple(".!?…。！？)]}>`\"'”*")


@dataclass(frozen=True, slots=True)
class Sections:
    """The parts of an answer that is no JSON; `is_cut` where the last one is open and stops in mid-sentence."""

    retain: str = ""
    summary: str = ""
    keep: str = ""
    is_cut: bool = False


def spoken(text: str) -> str:
    """Return the answer without the thinking before it; nothing where it is all thinking."""
    channels = list(CHANNEL.finditer(text))
    if channels:
        return _bare(text[channels[-1].end() :]) if channels[-1][1] == "final" else ""
    start = 0
    while opening := OPENING.match(text, start):
        closing = CLOSING.search(text, opening.end())
        if closing is None:
            return ""
        start = closing.end()
    rest = text[start:].lstrip()
    if rest.startswith(("{", "[", "```", "<", "#")):
        return _bare(rest)
    # Some templates open the thinking in the prompt, so that the answer holds only its end.
    orphans = list(CLOSING.finditer(rest))
    return _bare(rest[orphans[-1].end() :] if orphans else rest)


def sections_of(text: str) -> Sections | None:
    """Return what stands in `<retain>`, `<summary>`, `<keep>`, else below headings of these names; None without."""
    return _tagged(text) or _headed(text)


def _tagged(text: str) -> Sections | None:
    """Read tags; one that is not closed ends where another begins."""
    found: dict[str, list[str]] = {}
    open_name, start = "", 0
    for tag in TAG.finditer(text):
        closes, name = bool(tag[1]), tag[2].lower()
        if open_name and closes == (name == open_name):
            found.setdefault(open_name, []).append(text[start : tag.start()].strip())
            open_name = ""
        if not closes and not open_name:
            open_name, start = name, tag.end()
    rest = _bare(text[start:])
    if open_name and rest:
        found.setdefault(open_name, []).append(rest)
    is_cut = bool(open_name and rest) and not rest.endswith(SENTENCE_ENDS)
    return _sections(found, is_cut=is_cut)


def _headed(text: str) -> Sections | None:
    """Read headings: of Markdown, bold, or a name with a colon."""
    found: dict[str, list[str]] = {}
    headings = [heading for heading in HEADING.finditer(text) if heading["mark"] or set(heading["end"]) & {":", "："}]
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    for heading, end in zip(headings, ends, strict=False):
        is_title = not set(heading["end"]) & set(":：*_")
        below = text[heading.end() : end]
        body = below if is_title else heading["rest"] + below
        found.setdefault(NAMES[heading["name"].lower()], []).append(_bare(body).removesuffix("```").strip())
    return _sections(found, is_cut=False)


def _sections(found: dict[str, list[str]], *, is_cut: bool) -> Sections | None:
    retain, summary, keep = ("\n".join(found.get(name, ())).strip() for name in ("retain", "summary", "keep"))
    return Sections(retain, summary, keep, is_cut) if retain or summary else None


def _bare(text: str) -> str:
    """Return the text without the special tokens that some engines leave at its end."""
    text = text.strip()
    for _ in range(3):
        last = text.rfind("<")
        if last == -1 or not SPECIAL_TOKENS.fullmatch(text, last):
            break
        text = text[:last].rstrip()
    return text
