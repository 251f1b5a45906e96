"""Settings in JSON are changed where they have to be; comments, order and form of the rest stay."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.connect.json_text import parsed, with_item, with_values, without_item

NEW = {"provider": {"elbowroom": {"n": 1}}, "model": "m", "list": [{"id": "q", "n": 1}]}
OLD = """{
\t"theme": "dark", // my own
\t/* others */ "provider": {
\t\t"other": {"x": [1, 2,],},
\t},
\t"model": "old", // the best
\t"list": [
\t\t{"id": "q", "n": 0, "k": 2},
\t\t"z" // last
\t]
}
"""
CHANGED = """{
\t"theme": "dark", // my own
\t/* others */ "provider": {
\t\t"other": {"x": [1, 2,],},
\t\t"elbowroom": {
\t\t\t"n": 1
\t\t}
\t},
\t"model": "m", // the best
\t"list": [
\t\t{"id": "q", "n": 1, "k": 2},
\t\t"z" // last
\t]
}
"""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=3), values, max_size=3)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_the_rest_stays(line_end: str) -> None:
    """Comments, tabs, trailing commas, line ends, and what nobody asked to change."""
    assert with_values(OLD.replace("\n", line_end), NEW) == CHANGED.replace("\n", line_end)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", '{\n  "a": 1\n}\n'),
        ("// mine", '// mine\n{\n  "a": 1\n}\n'),
        ("{}", '{\n  "a": 1\n}'),
        ('{"b": 2}', '{"b": 2, "a": 1}'),
        ('{ "a": 0 }', '{ "a": 1 }'),
        ('{"a": 1, "a": {}}', '{"a": 1, "a": 1}'),
        ('{"a": {"b": [1]}}', '{"a": 1}'),
        ('{\n    "b": 2 // two\n}', '{\n    "b": 2, // two\n    "a": 1\n}'),
    ],
)
def test_small_files(old: str, new: str) -> None:
    """An empty file, one line, a name that is there twice, a comment on the last entry."""
    assert with_values(old, {"a": 1}) == new


@pytest.mark.parametrize(
    ("text", "line"),
    [('{"a" 1}', 1), ("[1]", 1), ('{"a": 1} x', 1), ('{\n"a": 1', 2), ("{\n\na: 1}", 3), ('{"a": 1 /* ', 1)],
)
def test_what_is_no_json_is_refused(text: str, line: int) -> None:
    """The error names the line."""
    with pytest.raises(ValueError, match=f"^line {line}: "):
        with_values(text, NEW)


@given(objects, objects)
def test_all_that_is_set_is_there(old: dict[str, object], new: dict[str, object]) -> None:
    """What was set stands in the file, what was not is as before, and to set it again changes nothing."""
    text = with_values(with_values("", old), new)
    assert with_values(text, new) == text
    found = parsed(text).value
    assert {key: found[key] for key in old.keys() - new.keys()} == {key: old[key] for key in old.keys() - new.keys()}
    assert {key for key, value in new.items() if not isinstance(value, dict | list) and found[key] != value} == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[]", '[\n  "ours"\n]'),
        ('["a"]', '["a", "ours"]'),
        ('[\n  "a",\n  "b"\n]', '[\n  "a",\n  "b",\n  "ours"\n]'),
        ('[\r\n\t"a"\r\n]\r\n', '[\r\n\t"a",\r\n\t"ours"\r\n]\r\n'),
        ('["ours", 1]', '["ours", 1]'),
    ],
)
def test_an_item_of_a_list(old: str, new: str) -> None:
    """It comes to the end in the form of the list, is there once, and can be taken out again."""
    assert with_item(old, "ours") == new
    assert "".join(without_item(new, "ours").split()) == "".join(old.replace('"ours", ', "").split())


@given(st.lists(st.sampled_from(["a", "b", "ours", 1, None])), st.sampled_from([None, 2, "\t"]))
def test_lists_without_an_item(items: list[object], indent: int | str | None) -> None:
    """Wherever and however often it stands, the rest of the list stays and is still JSON."""
    text = without_item(json.dumps(items, indent=indent), "ours")
    assert json.loads(text) == [item for item in items if item != "ours"]
    assert json.loads(with_item(text, "ours")) == [*json.loads(text), "ours"]
