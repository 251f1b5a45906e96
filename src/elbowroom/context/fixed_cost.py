"""What no compaction can free, in words: how much it takes of the window, its largest items, and the remedy."""

from dataclasses import dataclass
from typing import Final

MOST_TOOLS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class FixedCost:
    """The parts of a request that stay whatever is compacted, and the window they stand in; sizes are tokens.

    `tools` are the names and sizes of the tools that the model is told of, `pinned` is the size of all pinned
    messages together, and `reserve` the room kept for the reply.
    """

    window: int
    reserve: int = 0
    system: int = 0
    tools: tuple[tuple[str, int], ...] = ()
    pinned: int = 0

    @property
    def all_tools(self) -> int:
        """Return the size of all tools together."""
        return sum(size for _, size in self.tools)

    @property
    def prompt(self) -> int:
        """Return the smallest size that the prompt can have."""
        return self.system + self.all_tools + self.pinned

    @property
    def total(self) -> int:
        """Return the smallest prompt and the room for the reply together."""
        return self.prompt + self.reserve

    @property
    def share(self) -> float:
        """Return the total as a share of the window; it is above 1 where the window is too small for it."""
        return self.total / self.window

    @property
    def is_tight(self) -> bool:
        """Tell whether less than half of the window is left for the conversation."""
        return self.total > self.window // 2


def notice_of(cost: FixedCost, *, slim_saves: int = 0) -> str | None:
    """Return what a person should read about a fixed cost that passes half the window; None where it does not.

    `slim_saves` is the number of tokens that slim tools would save, 0 where they are slim already.
    """
    if not cost.is_tight:
        return None
    return (
        f"{cost.total} of this model's {cost.window} tokens ({cost.share:.0%}) are taken before the conversation "
        f"begins: {', '.join(items_of(cost))}. {_remedy(cost, slim_saves)}"
    )


def refusal_of(cost: FixedCost, *, slim_saves: int = 0) -> str:
    """Return the error for a request that does not fit the window even without its history.

    It begins in the words that clients look for. `slim_saves` is as in `notice_of`.
    """
    return (
        f"This model's maximum context length is {cost.window} tokens. The request needs {cost.prompt}, however "
        f"short the conversation is made: {', '.join(items_of(cost, with_reply=False))}. {_remedy(cost, slim_saves)}"
    )


def items_of(cost: FixedCost, *, with_reply: bool = True) -> list[str]:
    """Return what takes how many tokens, the largest part first; empty parts are left out."""
    items = [
        (cost.all_tools, _tools_in_words(cost.tools)),
        (cost.system, "the system message"),
        (cost.pinned, "messages that have to stay"),
        (cost.reserve if with_reply else 0, "room for the reply"),
    ]
    return [f"{size} by {words}" for size, words in sorted(items, key=_size, reverse=True) if size]


def _tools_in_words(tools: tuple[tuple[str, int], ...]) -> str:
    largest = sorted(tools, key=lambda tool: tool[1], reverse=True)[:MOST_TOOLS_NAMED]
    named = ", ".join(f"{name} {size}" for name, size in largest)
    if len(tools) == 1:
        return f"the tool {tools[0][0]}"
    if len(tools) <= MOST_TOOLS_NAMED:
        return f"{len(tools)} tools ({named})"
    return f"{len(tools)} tools (the largest: {named})"


def _remedy(cost: FixedCost, slim_saves: int) -> str:
    ways = ["load the model with a larger context length"]
    if cost.system > max(cost.all_tools, cost.pinned):
        ways.append("shorten the system message")
    elif cost.pinned > cost.all_tools:
        ways.append("send less text at once")
    if cost.tools:
        ways.append("switch tools off in the client")
    if cost.tools and slim_saves > 0:
        ways.append(f'set client_tools = "slim" (saves about {slim_saves} tokens)')
    *first, last = ways
    sentence = f"{', '.join(first)}, or {last}." if first else f"{last}."
    return sentence[0].upper() + sentence[1:]


def _size(item: tuple[int, str]) -> int:
    return item[0]
