"""Asks a chat template what it demands, by a function that renders with it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from elbowroom.context.templates import TemplateDemands, asked_demands, asked_without_tools
from elbowroom.context.transcript import Message

Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], str]
"""Renders messages and tools to the prompt, generation prompt included; raises where it cannot."""


def demands_of(render: Render, *, tools: bool = True) -> TemplateDemands:
    """Return the demands with tools on offer, or without; whatever the rendering raises is an answer too."""
    asking = asked_demands() if tools else asked_without_tools()
    question = next(asking)
    while True:
        try:
            text: str | None = render(question.messages, question.tools)
        except Exception:  # noqa: BLE001 - whoever renders has errors of its own
            text = None
        try:
            question = asking.send(text)
        except StopIteration as end:
            return cast("TemplateDemands", end.value)
