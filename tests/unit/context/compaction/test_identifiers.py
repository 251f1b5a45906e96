"""What counts as an identifier: what a paraphrase would destroy, by its form."""

import time

import pytest

from elbowroom.context.compaction.identifiers import find_identifiers, stands_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Plain words, and don't forget the rest.", []),
        ("Read-only, and/or, e.g. z.B., 16-year-old, 5–7 days, 2nd, 24-hour, # Title", []),
        ("1. first\n12. twelfth\n100) hundredth", []),
        ("Move src/app.py to C:\\Old\\app.py now", ["src/app.py", "C:\\Old\\app.py"]),
        ("See ./a/b/c, max_tokens=4096 and std::vector.", ["a/b/c", "max_tokens", "4096", "std::vector"]),
        ("On 5 March 2024 at 10:30 pm", ["2024", "10:30"]),
        ("It took 50 minutes, 1.5 km, 100MB and $1,200.50", ["1.5", "100", "1,200.50"]),
        ('The "north hall" and `make all`, not “the hall”', ["north hall", "make all", "the hall"]),
        ("See [[Old Harbour]] or https://a.example/x?y=1.", ["[[Old Harbour]]", "https://a.example/x?y=1"]),
        ("v1.2 of FOO-17 at deadbeef1, camelCaseName()", ["v1.2", "FOO-17", "deadbeef1", "camelCaseName"]),
        ("Issue #7 of a@b.example", ["#7", "a@b.example"]),
        ("締切は2027年3月15日、会議室A12、予算840円", ["2027", "A12", "840"]),
        ("бюджет 840 руб. до 16.01.2027", ["840", "16.01.2027"]),
    ],
)
def test_what_is_found(text: str, found: list[str]) -> None:
    """Identifiers are found in their order, without the quotes around them and the units after them."""
    assert [each.core for each in find_identifiers(text)] == found


@pytest.mark.parametrize(
    ("text", "core", "stands"),
    [
        ("It has 8192 tokens.", "8192", True),
        ("It has 18192 tokens.", "8192", False),
        ("It costs 1,200.50.", "200", False),
        ("It costs 1,200.50.", "1,200", False),
        ("It costs 1,200.", "1,200", True),
        ("It has 100MB.", "100", True),
        ("It is in /home/x/src/app.py, said 17.", "src/app.py", True),
        ("It is webapp.py.", "app.py", False),
        ("Twice: 18192, and 8192", "8192", True),
        ("締切は3月15日", "15", True),
        ("", "15", False),
    ],
)
def test_what_stands_in_a_text(text: str, core: str, stands: bool) -> None:
    """What is a part of a longer word or figure does not stand there; a path does in a longer one."""
    assert stands_in(core, text) is stands


@pytest.mark.parametrize(
    ("text", "names"),
    [("He said 'the hall' and 'North 4' in 2024 of a.md", ["North 4", "a.md"]), ("「北館」", ["北館"])],
)
def test_what_names_one_thing(text: str, names: list[str]) -> None:
    """Figures name nothing, nor do plain words in quotation marks."""
    assert [each.core for each in find_identifiers(text) if each.is_name] == names


@pytest.mark.parametrize("piece", ["\n", " \n", "漢", "漢1", "\n1", "a.", "[[", '"a', "`", "1,", "a/"], ids=repr)
def test_a_long_text_is_read_once(piece: str) -> None:
    """Empty lines or letters of a script without spaces, however many, hold up nobody."""
    began = time.process_time()
    assert len(list(find_identifiers(piece * 30_000))) <= 30_000
    assert time.process_time() - began < 2
