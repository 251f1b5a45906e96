"""Which slot a prompt gets, what is saved and restored for it, and what is learned: tables of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from elbowroom.context.costs import Engine, Moving
from elbowroom.context.reuse import SentPrompt
from elbowroom.context.slots import FILES, File, Held, Pays, Seat, SlotTable, Standing, Way, standing_after, ways_of

TOKENS = 100
"""Each message of these prompts has as many."""


def prompt(*said: str, tools: Sequence[str] = ()) -> SentPrompt:
    """Return a prompt of these messages."""
    body = {"messages": [{"role": "user", "content": text} for text in said], "tools": [{"name": one} for one in tools]}
    return SentPrompt.of("llama/m", 8192, body, {}, tokens=TOKENS * len(said))


def always(moved: int, spared: int) -> bool:
    """Tell that it pays to save and to restore."""
    return True


def seated(table: SlotTable, of: str | None, *said: str, pays: Pays = always, is_new: bool = False) -> Seat:
    """Return the seat of a prompt, which has one; a single message begins a conversation."""
    seat = table.seat(prompt(*said), of, pays, is_new=is_new or len(said) == 1)
    assert seat is not None
    return seat


def read(table: SlotTable, of: str | None, *said: str, pays: Pays = always, is_new: bool = False) -> Seat:
    """Have a prompt read to its end, save what leaves its slot, and restore the file that is for it."""
    seat = seated(table, of, *said, pays=pays, is_new=is_new)
    table.taken(seat)
    if seat.leaves is not None:
        table.saved(seat, seat.leaves.tokens if seat.saves else 0)
    if seat.file is not None and seat.file.tokens:
        assert table.restored(seat.file, seat.file.tokens)
    table.left(seat, prompt(*said))
    return seat


def seats(slots: int, *asked: tuple[str | None, str]) -> list[tuple[int, str, str, int]]:
    """Return for each prompt its slot, what is saved and what restored for it, and the tokens expected in messages."""
    table = SlotTable(slots)
    found, seen = [], set[str | None]()
    for of, said in asked:
        seat = read(table, of, *said, is_new=of not in seen)
        seen.add(of)
        leaves = str(seat.leaves.of) if seat.leaves is not None else ""
        back = str(seat.file.held.of) if seat.file is not None else ""
        found.append((seat.slot, leaves, back, seat.expected // TOKENS))
    return found


@pytest.mark.parametrize(
    ("slots", "asked", "expected"),
    [
        pytest.param(
            1,
            [("A", "a"), ("A", "ab"), ("A", "abc")],
            [(0, "", "", 0), (0, "", "", 1), (0, "", "", 2)],
            id="one goes on in its slot",
        ),
        pytest.param(
            1,
            [("A", "a"), ("B", "x"), ("A", "ab"), ("B", "xy")],
            [(0, "", "", 0), (0, "A", "", 0), (0, "B", "A", 1), (0, "A", "B", 1)],
            id="two take turns in one",
        ),
        pytest.param(
            2,
            [("A", "a"), ("B", "x"), ("A", "ab"), ("B", "xy")],
            [(0, "", "", 0), (1, "", "", 0), (0, "", "", 1), (1, "", "", 1)],
            id="two have two",
        ),
        pytest.param(
            2,
            [("A", "a"), ("B", "x"), ("C", "m"), ("B", "xy"), ("A", "ab")],
            [(0, "", "", 0), (1, "", "", 0), (0, "A", "", 0), (1, "", "", 1), (0, "C", "A", 1)],
            id="the one used least lately goes",
        ),
        pytest.param(
            2,
            [("A", "sssa"), ("B", "sssx"), ("A", "sssab")],
            [(0, "", "", 0), (1, "", "", 0), (0, "", "", 4)],
            id="a beginning in common is no reason to take a slot",
        ),
        pytest.param(
            1,
            [("A", "abcd"), (None, "abcdo"), ("A", "abcde"), ("B", "x")],
            [(0, "", "", 0), (0, "", "", 4), (0, "", "", 0), (0, "A", "", 0)],
            id="an order for a summary goes on in its place",
        ),
        pytest.param(
            1,
            [("A", "abcd"), ("A", "s"), ("B", "x"), ("A", "st")],
            [(0, "", "", 0), (0, "", "", 0), (0, "A", "", 0), (0, "B", "A", 1)],
            id="what was compacted is not saved as it was before",
        ),
        pytest.param(
            1,
            [("A", "a"), (None, "title"), ("A", "ab"), (None, "tags")],
            [(0, "", "", 0), (0, "A", "", 0), (0, "", "A", 1), (0, "A", "", 0)],
            id="what belongs to no conversation is not saved",
        ),
        pytest.param(
            1,
            [("A", "abc"), (None, "title"), (None, "abcn"), ("B", "x")],
            [(0, "", "", 0), (0, "A", "", 0), (0, "", "A", 3), (0, "A", "", 0)],
            id="what is read ahead for a conversation is its own",
        ),
    ],
)
def test_seats(slots: int, asked: list[tuple[str | None, str]], expected: list[tuple[int, str, str, int]]) -> None:
    """Each letter is a message; conversations keep their slots, and have a file while they have none."""
    assert seats(slots, *asked) == expected


def test_a_busy_slot_is_not_taken() -> None:
    """A second request of a conversation that is being answered gets another slot."""
    table = SlotTable(2)
    first = seated(table, "A", "a")
    table.taken(first)
    assert seated(table, "A", "a", "b", is_new=True).slot != first.slot


def test_tools_stand_before_all_messages() -> None:
    """With other tools nothing of a prompt is in a slot."""
    held = Held(prompt("a", "b"), "A")
    assert held.shared_with(prompt("a", "b", "c")) == 2 * TOKENS
    assert held.shared_with(prompt("a", "x")) == TOKENS
    assert held.shared_with(prompt("a", "b", "c", tools=["ring"])) == 0


def test_nothing_is_moved_that_does_not_pay() -> None:
    """Where reading is quicker, nothing is saved or restored; that a conversation is back is noticed all the same."""
    table = SlotTable(1)
    read(table, "A", "a")
    assert not read(table, "B", "x", pays=lambda moved, spared: False).saves
    back = read(table, "A", "a", "b", pays=lambda moved, spared: False)
    assert (back.expected, back.file is not None and back.file.tokens) == (TOKENS, 0)
    assert read(table, "B", "x", "y", pays=lambda moved, spared: moved <= spared).file is not None


def test_what_is_never_back_is_saved_no_more() -> None:
    """Requests that nobody goes on with cost no time in the end; chats that take turns are saved soon again."""

    def pays(moved: int, spared: int) -> bool:
        return 10 * spared > moved  # it takes a tenth of the time of reading to move as much

    table = SlotTable(1)
    saves = [read(table, f"talk-{number}", f"It begins with {number}.", pays=pays).saves for number in range(50)]
    assert saves[1:10] == [True] * 9
    assert not any(saves[20:])
    turns = [read(table, name, name, *"+" * turn, pays=pays).saves for turn in range(8) for name in ("A", "B")]
    assert all(turns[-4:])


def test_each_conversation_has_its_own_file() -> None:
    """What another conversation has in a file is not restored, however alike both begin."""
    table = SlotTable(1)
    read(table, "A", "s", "s", "s", "a")
    read(table, "B", "s", "s", "s", "b")
    assert read(table, "C", "s", "s", "s", "c").file is None


@pytest.mark.parametrize(("tokens", "is_kept"), [(0, False), (TOKENS - 1, False), (TOKENS, True), (TOKENS + 20, True)])
def test_a_slot_that_has_something_else(tokens: int, is_kept: bool) -> None:
    """Where the engine saves less than the prompt, the conversation is out of its slot and in no file."""
    table = SlotTable(1)
    read(table, "A", "a")
    seat = seated(table, "B", "x")
    table.taken(seat)
    table.saved(seat, tokens)
    table.left(seat, prompt("x"))
    back = seated(table, "A", "a", "b")
    assert back.file is not None
    assert (back.file.tokens > 0) is is_kept
    assert back.expected == TOKENS


def test_a_file_that_was_written_over() -> None:
    """A file that has another number of tokens than was saved is forgotten: another server has written it."""
    table = SlotTable(1)
    read(table, "A", "a")
    read(table, "B", "x")
    back = seated(table, "A", "a", "b")
    assert back.file is not None
    assert not table.restored(back.file, back.file.tokens + 1)
    assert seated(table, "A", "a", "b").file is None


def test_what_failed_is_not_known() -> None:
    """After a request that has failed nothing is taken to be in the slot, so that nothing of it is saved."""
    table = SlotTable(1)
    read(table, "A", "a")
    seat = seated(table, "A", "a", "b")
    table.taken(seat)
    table.left(seat, None)
    assert seated(table, "B", "x").leaves is None


def test_files_are_few() -> None:
    """A further conversation takes the file of the one that was back longest ago, and each has one."""
    table = SlotTable(1)
    numbers = []
    for number in range(FILES + 2):
        seat = read(table, f"talk-{number}", f"It begins with {number}.")
        numbers += [seat.number] if seat.leaves is not None else []
    assert numbers == [*range(FILES), 0]
    assert read(table, "talk-0", "It begins with 0.", "On.").file is None
    assert read(table, "talk-2", "It begins with 2.", "On.").file is not None


SEAT = Seat(0)
IN_SLOT, IN_FILE = Seat(0, "A", 50), Seat(0, "A", 50, file=File(0, Held(prompt("a"), "A"), 50), is_out=True)
NOT_SAVED = replace(IN_FILE, file=File(0, Held(prompt("a"), "A"), 0))


@pytest.mark.parametrize(
    ("standing", "seat", "expected"),
    [
        ("tried", SEAT, ["slot"]),
        ("tried", IN_SLOT, ["slot"]),
        ("tried", IN_FILE, ["anywhere", "file"]),
        ("tried", NOT_SAVED, ["anywhere"]),
        ("tried", replace(IN_FILE, is_out=False), ["file"]),
        ("saves", IN_SLOT, ["slot"]),
        ("saves", IN_FILE, ["file"]),
        ("saves", NOT_SAVED, ["slot"]),
    ],
)
def test_ways(standing: Standing, seat: Seat, expected: list[Way]) -> None:
    """Until it is known what helps, the engine is asked first whether it has what has left its slot by itself."""
    assert ways_of(standing, seat) == expected


@pytest.mark.parametrize(
    ("standing", "way", "has", "expected"),
    [
        ("tried", "anywhere", True, "left_alone"),
        ("tried", "anywhere", False, "saves"),
        ("tried", "anywhere", None, "left_alone"),
        ("tried", "file", True, "saves"),
        ("tried", "file", False, "left_alone"),
        ("tried", "file", None, "left_alone"),
        ("saves", "file", False, "saves"),
        ("left_alone", "anywhere", False, "left_alone"),
    ],
)
def test_standing(standing: Standing, way: Way, has: bool | None, expected: Standing) -> None:
    """The first conversation that is back tells what is done from then on; what cannot be verified is not done."""
    assert standing_after(standing, way, has) == expected


def test_a_conversation_of_which_nothing_is_known_has_no_seat() -> None:
    """After a restart the engine chooses for what goes on; it has a seat where it landed, as has what begins."""
    table = SlotTable(2)
    assert table.seat(prompt("a", "b", "c"), "A", always) is None
    table.strayed()
    assert table.seat(prompt("x"), "B", always, is_new=True) is None  # it may be the very slot
    there = table.landed({1}, Seat(0, "A"))
    assert there == Seat(1, "A")
    assert seated(table, "B", "x").slot == 0
    table.left(there, prompt("a", "b", "c"))
    assert seated(table, "A", "a", "b", "c", "d", "e").slot == 1


@pytest.mark.parametrize(("begun", "slot"), [({2}, 2), ({0, 2}, 2), ({1, 2}, None), (set(), None), ({0}, None)])
def test_where_a_prompt_landed(begun: set[int], slot: int | None) -> None:
    """It is in the one slot in which something has begun, other than what this server has sent to a slot."""
    table = SlotTable(3)
    table.taken(Seat(0, "A"))
    table.strayed()
    there = table.landed(begun, Seat(0, "B"))
    assert (there.slot if there is not None else None) == slot


def test_a_prompt_that_is_lost_may_be_anywhere() -> None:
    """Where it is not known which slot the engine has chosen, it is not known what any of them has."""
    table = SlotTable(2)
    read(table, "A", "a")
    read(table, "B", "x")
    table.strayed()
    table.lost()
    assert table.seat(prompt("a", "b"), "A", always) is None
    assert seated(table, "C", "m").leaves is None


@pytest.mark.parametrize(("slots", "busy"), [(1, {0}), (2, {0, 1})])
def test_where_all_slots_are_busy_nothing_waits_for_one(slots: int, busy: set[int]) -> None:
    """The engine itself queues a prompt then, which is not said to be in a slot."""
    table = SlotTable(slots)
    assert table.seat(prompt("a"), "A", always, is_new=True, busy=busy) is None
    for slot in range(slots):
        table.taken(Seat(slot, slot))
    assert table.seat(prompt("a"), "A", always, is_new=True) is None


def test_what_belongs_to_nobody_goes_first() -> None:
    """Titles and tags take the slot of which nothing is known, and then each other's, and no conversation's."""
    table = SlotTable(3)
    read(table, "A", "a")
    read(table, "B", "x")
    assert [read(table, None, name).slot for name in ("title", "tags", "follow-ups")] == [2, 2, 2]


def test_two_at_once_have_files_of_their_own() -> None:
    """What is written or read now is nobody else's file until that has ended."""
    table = SlotTable(2)
    read(table, "A", "a")
    read(table, "B", "x")
    first = seated(table, "C", "m")
    table.taken(first)
    second = seated(table, "D", "n")
    table.taken(second)
    assert first.leaves is not None
    assert second.leaves is not None
    assert first.number != second.number
    for seat in (first, second):
        table.saved(seat, TOKENS)
        table.left(seat, prompt("m"))
    assert seated(table, "A", "a", "b").file is not None


def test_a_file_that_is_restored_is_not_written_over() -> None:
    """Nor where all files are used, and it is the one that was back longest ago."""
    table = SlotTable(2)
    for number in range(FILES + 2):
        read(table, f"talk-{number}", f"It begins with {number}.")
    back = seated(table, "talk-0", "It begins with 0.", "On.")
    table.taken(back)
    assert back.file is not None
    other = seated(table, "another", "It begins anew.")
    assert len({back.file.number, back.number, other.number}) == 3


def test_what_was_not_sent_leaves_all_as_it_was() -> None:
    """Where a person leaves while a slot is saved, the conversation there goes on in it."""
    table = SlotTable(1)
    read(table, "A", "a")
    seat = seated(table, "B", "x")
    table.taken(seat)
    table.given_back(seat)
    assert seated(table, "A", "a", "b").expected == TOKENS


@pytest.mark.parametrize(("tokens", "seconds"), [(10, 1.0), (900, 3.0), (100_000, 5.0)])
def test_patience(tokens: int, seconds: float) -> None:
    """It is waited for a slot to be moved no longer than it takes to read, and for a few seconds at most."""
    assert Moving().patience(Engine(300, 20), tokens) == seconds


@pytest.mark.parametrize(
    ("moving", "moved", "spared", "pays"),
    [
        (Moving(), 6000, 1, True),  # nobody knows yet how long it takes
        (Moving(10_000, 2.0), 6000, 3000, True),  # 1.2 s instead of 10
        (Moving(10_000, 2.0), 6000, 300, False),  # 1.2 s instead of 1
        (Moving(1000, 20.0), 6000, 6000, False),  # a slow disk
    ],
)
def test_moving_pays(moving: Moving, moved: int, spared: int, pays: bool) -> None:
    """A slot is saved and restored where that takes less time than reading again."""
    assert moving.pays(Engine(300, 20), moved, spared) is pays
