"""Material in a message is found whatever its form, and the words around it stay word for word."""

from typing import Any

import pytest

from elbowroom.context.outputs import (
    Material,
    is_shortened,
    material_in,
    note_on_whole,
    short_note_on_whole,
    with_material,
)

LINES = "Line of a log that says nothing.\n" * 300
QUESTION = "What does the log say?"


def asked(text: str, role: str = "user") -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": text}


def around(text: str) -> str:
    """Return what stands around the material of a user's message."""
    message = asked(text)
    return str(with_material(message, dict.fromkeys(material_in(message), "*"))["content"])


class Searched(str):
    """A text that counts the characters which are looked through for other texts."""

    looked_through = 0

    def find(self, *args: Any) -> int:
        """Find as `str` does."""
        found = super().find(*args)
        self.looked_through += (found if found >= 0 else len(self)) - args[1]
        return found

    def rfind(self, *args: Any) -> int:
        """Find as `str` does."""
        found = super().rfind(*args)
        self.looked_through += args[2] - (found if found >= 0 else args[1])
        return found


@pytest.mark.parametrize("opening", ["<source>", "<source><content>", "<source><file>"])
def test_many_openings_are_looked_through_once(opening: str) -> None:
    """A text of thousands of tags that are opened and hardly ever closed holds nobody up."""
    text = Searched(opening * 2000 + LINES + "</source>")
    [*_, last] = material_in(asked(text))
    assert text[last.start : last.end].startswith(LINES[:20]) or last.name == "the source"
    assert text.looked_through < 600 * text.count("<")


def test_empty_fence_ends_at_once() -> None:
    """The words after an empty fenced block are the person's own."""
    own = "My own words stand here. " * 60
    assert around(f"```\n```\n{own}\n```log.md\n{LINES}```\n") == f"```\n```\n{own}\n```log.md\n*\n```\n"


@pytest.mark.parametrize("question", [QUESTION, f"{QUESTION}\nAnswer in one sentence.\nName the pier."])
def test_paragraphs_at_the_ends_of_pasted_text_stay(question: str) -> None:
    """A question of several lines stays whole, before or after the text, where an empty line separates them."""
    assert around(f"{question}\n\n{LINES}").startswith(f"{question}\n")
    assert around(f"{LINES}\n{question}").endswith(f"\n{question}")


def test_parts_keep_their_order() -> None:
    """Text stands where the first text stood, after the pictures before it and before those after it."""
    pictures = [{"type": "image_url", "image_url": {"url": f"data:{number}"}} for number in range(2)]
    empty, text = ({"type": "text", "text": said} for said in ("", f"{QUESTION}\n\n{LINES}"))
    message = {"role": "user", "content": [empty, pictures[0], text, pictures[1]]}
    changed = with_material(message, dict.fromkeys(material_in(message), "*"))["content"]
    assert [changed[0], changed[2]] == pictures
    assert changed[1]["type"] == "text"


@pytest.mark.parametrize(
    "text",
    [
        f'<context>\n<source name="log.md">{LINES}</source>\n</context>\n\n{QUESTION}',
        f"{QUESTION}\n\n{LINES}",
        f"```log.md\n{LINES}```\n\n{QUESTION}",
        "x" * 20_000,
    ],
)
@pytest.mark.parametrize("note", [note_on_whole("log.md", 9, 9, "abc", has_reader=True), short_note_on_whole(9, "abc")])
def test_shortened_message_is_recognised(text: str, note: str) -> None:
    """It is the same message with a note in it; no other message is, however similar."""
    whole = asked(text)
    shorter = with_material(whole, dict.fromkeys(material_in(whole), note))
    assert is_shortened(shorter, whole)
    assert not is_shortened(whole, whole)
    assert not is_shortened({**shorter, "role": "assistant"}, whole)
    assert not is_shortened(with_material(whole, dict.fromkeys(material_in(whole), "")), whole)
    other = asked(f"{text[:10]}Another question.\n\n{LINES}{LINES}\n\nIs it another one?")
    assert not is_shortened(shorter, other)


def test_name_is_that_of_the_block() -> None:
    """A person reads the file's name, wherever the client writes it."""
    found = material_in(
        asked(f"<note_context>\n<title>log</title>\n<path>a/log.md</path>\n<content>{LINES}</content>\n</note_context>")
    )
    assert [piece.name for piece in found] == ["a/log.md"]
    assert found == [Material("a/log.md", found[0].start, found[0].start + len(LINES))]
