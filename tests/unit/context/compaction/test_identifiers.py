"""What counts as an identifier: what a paraphrase would destroy, by its form."""

import pytest

from elbowroom.context.compaction.identifiers import find_identifiers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Plain words, and don't forget the rest.", []),
        ("Move src/app.py to C:\\Old Files\\app.py now", ["src/app.py", "C:\\Old Files\\app.py"]),
        ("On 5 March 2024 at 10:30 pm", ["5 March 2024", "10:30"]),
        ("It took 50 minutes, 1.5 km and $1,200.50", ["50", "1.5", "$1,200.50"]),
        ('The "north hall" and `make all`, not “the hall”', ["north hall", "make all", "the hall"]),
        ("See [[Old Harbour]] or https://a.example/x?y=1.", ["[[Old Harbour]]", "https://a.example/x?y=1"]),
        ("v1.2 of FOO-17 at deadbeef1, camelCaseName()", ["v1.2", "FOO-17", "deadbeef1", "camelCaseName()"]),
        ("締切は3月15日、会議室A", ["3月15日"]),
    ],
)
def test_what_is_found(text: str, found: list[str]) -> None:
    """Identifiers are found in their order, without the quotes around them and the units after them."""
    assert [each.core for each in find_identifiers(text)] == found
