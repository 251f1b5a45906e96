"""References to kept outputs."""

import pytest

from elbowroom.context.outputs.output import ALPHABET, ID_LENGTH, ref_to


@pytest.mark.parametrize(
    ("text", "size", "lines"),
    [("", 0, 0), ("a", 1, 1), ("a\n", 2, 1), ("a\n\n", 3, 2), ("ä\nb", 4, 2), ("\n", 1, 1), ("\udc80", 3, 1)],
)
def test_sizes_are_bytes_and_lines(text: str, size: int, lines: int) -> None:
    """The size is that in UTF-8; a line break at the end begins no line."""
    ref = ref_to("", text)
    assert (ref.bytes, ref.lines) == (size, lines)
    assert len(ref.id) == ID_LENGTH
    assert set(ref.id) <= set(ALPHABET)


def test_the_id_depends_on_owner_and_text_alone() -> None:
    """The same text of one owner has the same id; another owner's or another text has another."""
    assert ref_to("me", "text") == ref_to("me", "text")
    assert len({ref_to(owner, text).id for owner in ("", "me", "you") for text in ("text", "text\n")}) == 6
