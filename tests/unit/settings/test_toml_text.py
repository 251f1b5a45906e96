"""A changed settings file says what was wanted, and keeps everything else as a person wrote it."""

import string
import tomllib
from typing import Any

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.settings.toml_text import rewritten

WRITTEN = '''\
# My settings

[server]  # only here
port = 2345 # the usual one
# host = "nas"

# ---- agents ----

# Writes
[[agents]]
id = "writer"
model = 'm'   # small
tools = ["vault.read",
  "vault.list",  # both
]

# how it speaks
[agents.sampling]
temperature = 0.20

# Reads
[[agents]]
id="reader"
model = "m"
instructions = """
[[agents]]
# no comment
"""
# not in use: critic

# At the end
[compaction]
auto = true
'''


def changed(text: str, *changes: tuple[str, Any]) -> str:
    """Return the text after changes of values, each by a path such as `agents.0.model`; None removes a value."""
    wanted = tomllib.loads(text)
    for path, value in changes:
        *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = wanted
        for part in above:
            place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
        if value is None:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    result = rewritten(text, wanted)
    assert tomllib.loads(result) == wanted
    return result


@pytest.mark.parametrize("text", ["", "# only this\n", WRITTEN, WRITTEN.rstrip("\n"), WRITTEN.replace("\n", "\r\n")])
def test_no_change_keeps_every_byte(text: str) -> None:
    """A file that says what is wanted already stays as it is, but for a line end that the last line lacks."""
    ended = text if not text or text.endswith("\n") else f"{text}\n"
    assert rewritten(text, tomllib.loads(text)) == ended


@cases(
    ("path", "value", "before", "after"),
    [
        ("server.port", 1, "port = 2345 # the", "port = 1 # the"),
        ("server.token", "x", '# the usual one\n# host = "nas"', '# the usual one\ntoken = "x"\n# host = "nas"'),
        ("agents.0.model", "big", "model = 'm'   # small", 'model = "big"   # small'),
        ("agents.0.name", "W", "]\n\n# how", ']\nname = "W"\n\n# how'),
        ("agents.0.sampling.top_p", 1, "= 0.20\n", "= 0.20\ntop_p = 1\n"),
        ("agents.0.sampling", None, "# how it speaks\n[agents.sampling]\ntemperature = 0.20\n\n", ""),
        ("agents.0", None, WRITTEN[WRITTEN.index("# Writes") : WRITTEN.index("# Reads")], ""),
        ("agents.1.instructions", "a\nb\n", "[[agents]]\n# no comment\n", "a\nb\n"),
        ("agents.1.vault.write", False, "critic\n", "critic\n\n[agents.vault]\nwrite = false\n"),
        ("compaction", None, "# At the end\n[compaction]\nauto = true\n", ""),
        ("vault.path", "~/N", "auto = true\n", 'auto = true\n\n[vault]\npath = "~/N"\n'),
        ("providers", [], "# My settings\n\n", "# My settings\n\nproviders = []\n\n"),
        (
            "agents.2",
            {"id": "new", "model": "m", "sampling": {"seed": 1}},
            "critic\n",
            'critic\n\n[[agents]]\nid = "new"\nmodel = "m"\n\n[agents.sampling]\nseed = 1\n',
        ),
    ],
)
def test_a_change_touches_its_own_lines_alone(path: str, value: Any, before: str, after: str) -> None:
    """Comments, order, spaces and quotes of everything else stay; a comment right above a table goes with it."""
    assert WRITTEN.count(before) == 1
    assert changed(WRITTEN, (path, value)) == WRITTEN.replace(before, after)


def test_a_row_that_goes_leaves_the_comments_of_others() -> None:
    """What stands apart below the last row is kept."""
    text = changed(WRITTEN, ("agents.1", None))
    assert "# not in use: critic\n" in text
    assert "# Reads" not in text
    assert text.count("#") == WRITTEN.count("#") - 2


@cases(("text", "path", "value", "result"), [
        ("server.port = 1  # it\n", "server.port", 2, "server.port = 2  # it\n"),
        ("server = { port = 1 }\n", "server.port", 2, "server = { port = 2 }\n"),
        ('agents = [{ id = "a", model = "m" }]\n', "agents.0.model", "n", None),
        ('agents = [{ id = "a", model = "m" }]\n', "agents.1", {"id": "b", "model": "m"}, None),
        ('[[agents]]\nid = "a"\nmodel = "m"\nsampling.seed = 1\n', "agents.0.sampling.top_k", 2, None),
        ('[[agents]]\nid = "a"\n[server]\nport = 1\n[[agents]]\nid = "b"\n', "agents.1.id", "c", None),
        ('[a.b]\nx = 1\n[server]\nport = 1\n[a.c]\ny = 1\n', "a.z", 3, None),
        ("\ufeff", "server.port", 1, None),
    ])  # fmt: skip
def test_other_ways_of_writing_are_changed_too(text: str, path: str, value: Any, result: str | None) -> None:
    """Dotted keys, tables in a line, lists of them, and tables that are scattered through the file."""
    text = text.removeprefix("\ufeff")
    assert changed(text, (path, value)) == result or result is None


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_texts_full_of_brackets(quotes: str) -> None:
    """A long text whose lines look like headers, quotes and comments is one value, and does not take for ever."""
    end = r'\""" "' if quotes == '"""' else '""" "'
    lines = "[[agents]]\n  [x]\n# \"\n[link](it's) {\n" * 5000 + end
    text = f'a = [[1], # [\n[2]]\n{WRITTEN}[extra]\n"[k" = \'"\'\ntext = {quotes}\n{lines}{quotes}\n[last]\nx = ""\n'
    assert rewritten(text, tomllib.loads(text)) == text
    new = changed(text, ("last.x", 1), ("agents.1.model", "n"), ("a", 3))
    assert len(new) == len(text) - len("[[1], # [\n[2]]") - len('""') + len("31")


def test_line_ends_stay() -> None:
    """A file from Windows keeps its line ends, new lines included."""
    text = WRITTEN.replace("\n", "\r\n")
    new = changed(text, ("server.host", "nas"), ("agents.0.instructions", "one\ntwo"))
    assert new.count("\n") == new.count("\r\n") > text.count("\r\n")


NAMES = st.sampled_from(["id", "model", "name", "a b", "ü", 'q"t', "x-y", "1"])
TEXTS = st.text(st.sampled_from([*string.printable, "ü", "\x7f", "\u2028", "\\", '"', "'", "\n"]), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(
    st.builds(
        lambda name, row: {**row, "id": name}, st.sampled_from(["a", "b", "c", "d"]), st.dictionaries(NAMES, VALUES)
    ),
    max_size=4,
    unique_by=lambda row: str(row["id"]),
)
FILES = st.fixed_dictionaries(
    {}, optional={"agents": ROWS, "providers": ROWS, "server": st.dictionaries(NAMES, VALUES), "extra": VALUES}
)


@pytest.mark.slow
@given(first=FILES, second=FILES)
def test_any_content_can_be_made_of_any_other(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Whatever the file said, it says what was wanted afterwards, and again what it said at first."""
    text = rewritten(WRITTEN, first)
    assert tomllib.loads(text) == first
    assert tomllib.loads(rewritten(text, second)) == second
    assert rewritten(text, first) == text


@given(server=st.dictionaries(NAMES, VALUES, max_size=3), place=st.sampled_from(["server", "compaction", "vault"]))
def test_every_comment_outside_survives(server: dict[str, Any], place: str) -> None:
    """A change of one table leaves each comment that is not on a line of that table."""
    wanted = {**tomllib.loads(WRITTEN), place: server}
    text = rewritten(WRITTEN, wanted)
    kept = ["# My settings", "# ---- agents ----", "# Writes", "# small", "# both", "# how it", "# Reads", "# not in"]
    assert [comment for comment in kept if comment not in text] == []


def test_what_cannot_be_written_is_refused() -> None:
    """Where the library that writes TOML fails, as at an empty key behind a dot, that is said as ever."""
    with pytest.raises(ValueError, match="no way to change this text is known"):
        rewritten('server.port = 1\nserver."" = []\n', {"server": {"": 1}})
