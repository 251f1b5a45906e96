"""What `elbowroom status` draws, for terminals of every kind."""

import io
from typing import Any

import pytest
from cases import cases

from elbowroom.status.asking import Place, Snapshot
from elbowroom.status.command import show
from elbowroom.status.gauge import Terminal, bar, drawn, width

FILL = {"tokens": 6100, "window": 8192, "trigger": 6553, "stop_at": 7372}
TURN = {
    "conversation": "conv_1",
    "title": "When does the ferry run?",
    "agent": "writer",
    "model": "qwen2.5-7b-instruct",
    "phase": "streaming",
    "fill": FILL,
    "began": 1000,
}
ROW = {"id": "conv_2", "title": "", "agent": "writer", "status": "idle", "context": FILL, "compaction_count": 1}
MODELS = [
    {"id": "small", "state": "not-loaded", "window": None, "max_window": 32768},
    {"id": "large", "state": "loaded", "window": 8192, "max_window": 131072},
]
PROVIDERS = ({"id": "lmstudio", "reachable": True, "models": MODELS}, {"id": "ollama", "reachable": False})
PLAIN = Terminal(100)


def snapshot(**about: Any) -> Snapshot:
    """Return what a healthy server has answered, with these things in it."""
    return Snapshot("http://127.0.0.1:2345", "1.2.3", **about)


def test_all_of_it_in_plain_ascii() -> None:
    """Version and address, providers with windows, running turns with their phase, and what was answered lately."""
    told = snapshot(providers=PROVIDERS, live=(TURN,), conversations=(ROW, {**ROW, "status": "running"}))
    assert drawn(told, PLAIN, now=1012.7) == (
        "elbowroom 1.2.3 at http://127.0.0.1:2345\n"
        "\n"
        "lmstudio: answers\n"
        "  large (loaded): window of 8,192 tokens, at most 131,072\n"
        "  small (not-loaded): window not known, at most 32,768\n"
        "ollama: does not answer\n"
        "\n"
        "Answering now: 1\n"
        "  When does the ferry run?  streaming, 12 s: writer / qwen2.5-7b-instruct\n"
        f"  [{'#' * 37}..|....|.....] 6,100 of 8,192 (74 %)\n"
        "\n"
        "Lately:\n"
        "  conv_2  writer, compacted 1 time\n"
        f"  [{'#' * 37}..|....|.....] 6,100 of 8,192 (74 %)\n"
    )


def test_what_is_wrong_is_told_to_its_end() -> None:
    """What a person has to do stands at the end of an error, which is folded where the terminal is narrow."""
    why = "LM Studio does not answer at http://127.0.0.1:1234. Start its server: in LM Studio on the Developer page."
    down = {"id": "lmstudio", "reachable": False, "error": why}
    text = drawn(snapshot(providers=(down,), note=f"{why} {why}"), Terminal(60))
    assert " ".join(text.split()).count(why) == 3
    assert max(map(width, text.split("\n"))) <= 60


def test_a_long_title_gives_way_to_what_is_told_of_the_turn() -> None:
    """The title is cut before the agent and its model are, which the usual 80 columns have room for."""
    row = {**ROW, "title": "When does the ferry run? " * 9, "compaction_count": 2, "context": {**FILL, "turns_left": 3}}
    text = drawn(snapshot(live=({**TURN, "title": row["title"]},), conversations=(row,)), Terminal(), now=1012)
    assert "...  streaming, 12 s: writer / qwen2.5-7b-instruct\n" in text
    assert "...  writer, compacted 2 times, about 3 turns left\n" in text


@cases("columns", range(40, 130, 7))
@cases("is_unicode", [True, False])
@cases("tokens", [0, 1, 6553, 7372, 8192, 9_999_999])
def test_no_line_is_wider_than_the_terminal(columns: int, is_unicode: bool, tokens: int) -> None:
    """Whatever titles and names are, in letters of any width."""
    long = {**TURN, "title": "渡し船は何時に出ますか" * 20, "model": "m" * 300, "fill": {**FILL, "tokens": tokens}}
    wide = {**long, "model": "渡し船" * 100}
    models = [{"id": "x" * 300, "window": 8192}] * 30
    providers = (
        {"id": "p" * 300, "reachable": True, "models": models},
        {"id": "p", "reachable": False, "error": "The engine says: " + "渡し船は出ない " * 9 + "渡し船" * 60},
    )
    told = snapshot(live=(long, wide), providers=providers)
    lines = drawn(told, Terminal(columns, is_unicode), now=2000).split("\n")
    assert max(map(width, lines[1:])) <= columns
    assert is_unicode or all(line.isascii() for line in lines)


def test_marks_stand_where_it_is_compacted_and_stopped() -> None:
    """At 80 and 90 % of the bar, full or empty."""
    for share in (0.0, 0.5, 1.0, 3.0):
        drawn_bar = bar(share, (0.8, 0.9), 50, PLAIN)
        assert len(drawn_bar) == 52
        assert [place for place, cell in enumerate(drawn_bar[1:-1]) if cell == "|"] == [40, 45]
    assert "\u2588" in bar(0.5, (0.8, 0.9), 50, Terminal(is_unicode=True))


@pytest.mark.parametrize(("tokens", "code"), [(6552, "32"), (6553, "33"), (7371, "33"), (7372, "31")])
def test_colours_tell_how_near_the_edge_is(tokens: int, code: str) -> None:
    """Green, yellow from where it is compacted, red from where an answer is stopped; none where none are wanted."""
    told = snapshot(live=({**TURN, "fill": {**FILL, "tokens": tokens}},))
    assert f"\x1b[{code}m[" in drawn(told, Terminal(100, is_coloured=True), now=1)
    assert "\x1b" not in drawn(told, PLAIN, now=1)


def test_a_title_cannot_steer_the_terminal() -> None:
    """Escape sequences, line breaks and marks of direction in what people said are blanks."""
    told = drawn(snapshot(live=({**TURN, "title": "a\x1b[2Jb\nc\u202ed\x07e\x9bf"},)), Terminal(100, True), now=1)
    assert "a [2Jb c d e f" in told
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(told)


class Screen(io.TextIOWrapper):
    """A stream that is a terminal."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding)

    def isatty(self) -> bool:
        """Tell that it is one."""
        return True


@pytest.mark.parametrize(
    ("environ", "is_coloured", "is_screen"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, False, True),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_what_a_terminal_can_do(environ: dict[str, str], is_coloured: bool, is_screen: bool) -> None:
    """Colours and drawing over what was there, unless the person or the terminal says no; none of it in a file."""
    of_windows = {"WT_SESSION": "1"}
    terminal = Terminal.of(Screen("utf-8"), {**of_windows, **environ})
    assert (terminal.is_coloured, terminal.is_screen, terminal.is_unicode) == (is_coloured, is_screen, True)
    assert not Terminal.of(Screen("latin-1"), of_windows).is_unicode
    file = Terminal.of(io.TextIOWrapper(io.BytesIO(), "UTF_8"), {**of_windows, **environ})
    assert (file.is_coloured, file.is_screen, file.is_unicode) == (False, False, True)


def test_a_screen_is_drawn_over() -> None:
    """From its upper left corner on, and what was longer before is gone."""
    screen = Screen("utf-8")
    show("one\ntwo\n", screen, is_over=True, is_first=False, environ={"WT_SESSION": "1"})
    screen.seek(0)
    assert screen.read() == "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J"


@pytest.mark.parametrize("fill", [None, {}, {"tokens": "x"}, {**FILL, "window": 0}, 7])
def test_a_window_that_nobody_knows(fill: Any) -> None:
    """It is said, not guessed."""
    assert "is not known" in drawn(snapshot(live=({**TURN, "fill": fill},)), PLAIN, now=1)


def test_how_it_is_in_numbers() -> None:
    """0 healthy, 1 a provider does not answer, 2 no server."""
    assert (snapshot().health, snapshot().exit_code) == ("healthy", 0)
    assert (snapshot(providers=PROVIDERS).health, snapshot(providers=PROVIDERS).exit_code) == ("upstream down", 1)
    assert (Snapshot("x").health, Snapshot("x").exit_code) == ("not running", 2)
    assert "elbowroom serve" in drawn(Snapshot("http://127.0.0.1:1"), PLAIN)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:7"),
        ("0.0.0.0", "http://127.0.0.1:7"),
        ("::", "http://[::1]:7"),
        ("localhost", "http://localhost:7"),
    ],
)
def test_where_a_server_of_this_machine_is_reached(host: str, address: str) -> None:
    """One that listens on every address is reached on the loopback one."""
    assert Place.here(host, 7, None).address == address
