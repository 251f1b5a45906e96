"""The second check's arithmetic: how much of the results that have just come in may stand in the window."""

from collections.abc import Callable, Sequence

from elbowroom.context.budget import Budget

LEAST_SHARE = 64
ROOM_FOR_SUMMARY = 200
TRIES = 8


def room_for_results(budget: Budget, rest: int) -> int:
    """Return how many tokens results may take beside what cannot be freed and a summary; `rest` is the former."""
    return budget.trigger - budget.occupied(rest) - min(ROOM_FOR_SUMMARY, budget.window // 16)


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return how many tokens each result may take so that together they fit: the small ones whole, the rest alike."""
    granted = [0] * len(sizes)
    left, open_results = room, len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
        granted[index] = min(sizes[index], max(LEAST_SHARE, left // open_results))
        left -= granted[index]
        open_results -= 1
    return granted


def shortened(text: str, room: int, window: int, size_of: Callable[[str], int]) -> str:
    """Return a result as its beginning and end, within `room` tokens, with a word on what is missing and why.

    Nothing of the text is shown where even the explanation takes all the room.
    """
    size = size_of(text)
    shown = min(len(text), len(text) * room // max(1, size))
    for _ in range(TRIES):
        cut = _ends(text, shown, size, room, window)
        taken = size_of(cut)
        if taken <= room or not shown:
            return cut
        shown = shown * room // taken * 9 // 10
    return _ends(text, 0, size, room, window)


def _ends(text: str, shown: int, size: int, room: int, window: int) -> str:
    head = text[: (shown + 1) // 2]
    tail = text[len(text) - shown // 2 :]
    note = (
        f"[{len(text) - shown:,} characters are left out here. The whole result has {size:,} tokens, more than the "
        f"{room:,} that fit the model's window of {window:,} beside the conversation. To read what is missing, ask for "
        "a part of it: a range of lines or a narrower search. A model loaded with a larger context length holds more.]"
    )
    return "\n".join(filter(None, (head, note, tail)))
