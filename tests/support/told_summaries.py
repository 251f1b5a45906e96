"""Pruning agents whose summaries can be told apart, and what a prompt shows of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from scripted_pruner import text_of, valid_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

Body = dict[str, Any]
NAMES: Final = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
SIGNED: Final = re.compile(r"Told by (\w+)\.")


class SignedPlans:
    """Answers each order with a valid plan that is signed with the next name; it keeps one group, or none.

    `told` holds what each of them was told, by its name: the messages of its order.
    """

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self.told: dict[str, list[Body]] = {}

    def __call__(self, body: Body) -> str:
        """Return the plan."""
        again, name = divmod(len(self.told), len(NAMES))
        signed = NAMES[name] * (again + 1)
        self.told[signed] = body["messages"]
        plan = json.loads(valid_plan(body))
        if not self._keeps:
            plan["keep"] = []
        return json.dumps({**plan, "summary": f"Told by {signed}. {plan['summary']}"})


def signatures_in(messages: Sequence[Body]) -> list[str]:
    """Return the names that the summaries of a prompt are signed with, in order."""
    return [name for message in messages for name in SIGNED.findall(text_of(message))]
