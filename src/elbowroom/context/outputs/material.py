"""Finds the material that a client has put into a message: files, notes, retrieved passages, code, pasted text.

Open WebUI writes `<source>` blocks between `<context>` tags, Obsidian Copilot blocks such as `<note_context>` and
Smart Composer fenced blocks that are named by a path. What stands around material is the person's own question.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from elbowroom.context.transcript import Message, is_text, parts_of, text_in, text_of

LEAST: Final = 1000
"""Characters from which a piece counts as material."""
LEAST_PASTED: Final = 8000
"""Characters without any mark that nobody has typed."""
LONGEST_QUESTION: Final = 1000
"""Characters of the first and the last paragraph of a pasted text that may be the person's own words."""
BLOCKS: Final = (
    "source|file|document|retrieved_document|note_context|active_note|embedded_note|embedded_pdf|vault_note|"
    "variable_note|variable|selected_text|web_selected_text|dataview_block|url_content|web_tab_context|active_web_tab|"
    "youtube_video_context|website|attachment|context"
)
OPENING: Final = re.compile(rf"<({BLOCKS})(\s[^<>]{{0,500}})?>", re.IGNORECASE)
NAMES: Final = (
    re.compile(r"\b(?:name|path|title|url)=\"([^\"\n]{1,200})\"", re.IGNORECASE),
    re.compile(r"<(?:path|url)>([^<\n]{1,200})</", re.IGNORECASE),
    re.compile(r"<(?:title|name)>([^<\n]{1,200})</", re.IGNORECASE),
)
"""How an attribute and an element inside name a block, the best first."""
FENCE: Final = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)([^`\n]{0,300}+)\n", re.MULTILINE)
HEAD: Final = 500
PASTED: Final = "the pasted text"
SAYS_LEFT_OUT: Final = " left out"
"""Is in every note; a text without it, as nearly all are, need not be searched letter by letter."""
LEFT_OUT: Final = rf"\[[\d,]+ characters[^\n]{{0,320}}{SAYS_LEFT_OUT}"
NOTE: Final = re.compile(rf"{LEFT_OUT}(?: here: |; ref=)")
"""How the texts of `note_on_whole`, `short_note_on_whole` and `note_on_repeat` begin."""
REPEATED: Final = "the same text has come in another message"
VIEW: Final = re.compile(rf"{LEFT_OUT} here: (?!{REPEATED})[^\n]{{0,500}}? /v1/tool_outputs/(\w+)\]")
REPEAT: Final = re.compile(rf"{LEFT_OUT} here: {REPEATED}[^\n]{{0,500}}? /v1/tool_outputs/(\w+)\]")


@dataclass(frozen=True, slots=True)
class Material:
    """A piece of a text, `text[start:end]`, and what a person calls it."""

    name: str
    start: int
    end: int


def material_in(message: Message) -> list[Material]:
    """Return the material in a message's text, in order; of a system message only what is marked."""
    text = text_of(message)
    if len(text) < LEAST:
        return []
    marked = list(_without_containers(list(_blocks(text)))) or list(_fenced(text))
    found = [piece for piece in marked if piece.end - piece.start >= LEAST]
    if message.get("role") == "user" and len(text) >= LEAST_PASTED:
        found += [piece for piece in _pasted(text, marked) if piece.end - piece.start >= LEAST_PASTED]
    return sorted(found, key=lambda piece: piece.start)


def names_of(messages: list[Message]) -> list[str]:
    """Return what a person calls the material in these messages, each once."""
    return list(dict.fromkeys(piece.name for message in messages for piece in material_in(message)))


def with_material(message: Message, pieces: Mapping[Material, str]) -> Message:
    """Return the message with other texts in place of these pieces; its parts that are no text stay."""
    text = text_of(message)
    written: list[str] = []
    at = 0
    for piece in sorted(pieces, key=lambda piece: piece.start):
        written += [text[at : piece.start], pieces[piece]]
        at = piece.end
    changed = "".join([*written, text[at:]])
    media = [part for part in parts_of(message.get("content")) if not is_text(part)]
    if not media:
        return {**message, "content": changed}
    parts = parts_of(message.get("content"))
    shown = next(at for at, part in enumerate(parts) if is_text(part) and text_in(part))
    first = sum(not is_text(part) for part in parts[:shown])
    return {**message, "content": [*media[:first], {"type": "text", "text": changed}, *media[first:]]}


def note_on_whole(name: str, left_out: int, tokens: int, ref: str, *, has_reader: bool) -> str:
    """Return what stands in place of the middle of material: how much is left out, and where the whole can be read."""
    how = f'To read on: tool_output_cache(ref_id="{ref}").' if has_reader else f"ref={ref}"
    return (
        f"[{left_out:,} characters of {name} are left out here: the whole has about {tokens:,} tokens, more "
        f"than fit the model's window beside the conversation. It is kept; {how} The user can open it on this server: "
        f"/v1/tool_outputs/{ref}]"
    )


def short_note_on_whole(left_out: int, ref: str) -> str:
    """Return the same for material that has so little room that the long note would fill it."""
    return f"[{left_out:,} characters left out; ref={ref}]"


def note_on_repeat(name: str, left_out: int, ref: str, *, has_reader: bool) -> str:
    """Return what stands in place of material that another message has brought already."""
    how = f'To read it: tool_output_cache(ref_id="{ref}").' if has_reader else f"ref={ref}."
    return (
        f"[{left_out:,} characters of {name} are left out here: {REPEATED} of this conversation. {how} "
        f"The user can open it on this server: /v1/tool_outputs/{ref}]"
    )


def wholes_in(text: str) -> set[str]:
    """Return the ids of the whole texts of which one shows the beginning and end."""
    return set(VIEW.findall(text)) if SAYS_LEFT_OUT in text else set()


def repeats_in(text: str) -> dict[str, str]:
    """Return the notes on repeated material in a text, by the id of the whole."""
    return {found[1]: found[0] for found in REPEAT.finditer(text)} if SAYS_LEFT_OUT in text else {}


def has_note(text: str) -> bool:
    """Tell whether a text has a note on what is left out of it."""
    return SAYS_LEFT_OUT in text and NOTE.search(text) is not None


def is_shortened(message: Message, whole: Message) -> bool:
    """Tell whether a message is another one with shorter material: the words around the material are the same."""
    text, original = text_of(message), text_of(whole)
    if message.get("role") != whole.get("role") or len(text) >= len(original) or not has_note(text):
        return False
    around, at = [], 0
    for piece in material_in(whole):
        around.append(original[at : piece.start])
        at = piece.end
    if not around or not text.startswith(around[0]) or not text.endswith(original[at:]):
        return False
    at = 0
    for words in around:
        if (found := text.find(words, at)) < 0:
            return False
        at = found + len(words)
    return True


def _blocks(text: str) -> Iterator[Material]:
    """Yield what stands between the tags of known blocks, of a block with a `<content>` that alone."""
    ends: dict[str, int] = {}
    for opening in OPENING.finditer(text) if "<" in text else ():
        tag, attributes = opening[1], opening[2] or ""
        if ends.get(tag, 0) < opening.end():
            found = text.find(f"</{tag}>", opening.end())
            ends[tag] = found if found >= 0 else len(text) + 1
        if (end := ends[tag]) > len(text):
            continue  # a tag that nobody closes
        head = text[opening.end() : min(end, opening.end() + HEAD)]
        name = NAMES[0].search(attributes) or NAMES[1].search(head) or NAMES[2].search(head)
        inside = head.find("<content>")
        start = opening.end() + (inside + len("<content>") if inside >= 0 else 0)
        inner = text.rfind("</content>", max(start, end - HEAD), end) if inside >= 0 else -1
        yield Material(name[1] if name else f"the {tag.lower()}".replace("_", " "), start, inner if inner > 0 else end)


def _without_containers(blocks: list[Material]) -> Iterator[Material]:
    """Yield the innermost blocks, and those of which nothing large is in another one."""
    large = [block for block in blocks if block.end - block.start >= LEAST]
    for place, block in enumerate(large):
        following = large[place + 1] if place + 1 < len(large) else None
        if following is None or following.start >= block.end:
            yield block


def _fenced(text: str) -> Iterator[Material]:
    """Yield what stands between fences, by the path that Smart Composer writes after the first."""
    at = 0
    while ("`" in text or "~" in text) and (opening := FENCE.search(text, at)):
        end = text.find(f"\n{opening[1]}", opening.end() - 1)  # an empty block ends where its first line does
        if end < 0:
            return
        title = opening[2].strip()
        yield Material(title if "." in title or "/" in title else "the code", opening.end(), max(opening.end(), end))
        at = end + 1 + len(opening[1])


def _pasted(text: str, marked: list[Material]) -> Iterator[Material]:
    """Yield the stretches beside marked pieces, without a first and a last paragraph that may be the question."""
    at = 0
    for piece in [*sorted(marked, key=lambda piece: piece.start), Material("", len(text), len(text))]:
        if piece.start > at:
            yield _body(text, at, piece.start)
        at = max(at, piece.end)


def _body(text: str, start: int, end: int) -> Material:
    """Return a stretch without its first and its last paragraph, or without these lines where no line is empty."""
    if text.find("\n", start, end) < 0:
        return Material(PASTED, start, end)
    first_end, last_start = min(end, start + LONGEST_QUESTION), max(start, end - LONGEST_QUESTION)
    first = text.find("\n\n", start, first_end)
    first = first if first >= 0 else text.find("\n", start, first_end)
    last = text.rfind("\n\n", last_start, end)
    last = last if last >= 0 else text.rfind("\n", last_start, end)
    return Material(PASTED, start if first < 0 else first + 1, end if last <= first else last)
