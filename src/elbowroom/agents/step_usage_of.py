"""What one request has used, from its upstream's report, and by our own count where that cannot be true."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from elbowroom.context.step_usage import StepUsage

LEAST_REPORTED: Final = 2
"""Less than our count divided by this is no prompt's size: such engines report what was not in their cache."""


def step_usage_of(
    reported: Mapping[str, Any] | None, prompt: int, generated: str, count: Callable[[str], int]
) -> StepUsage:
    """Return what a request has used whose prompt has about `prompt` tokens by our count.

    `reported` is a usage object in OpenAI's form. What is missing in it, or cannot be true, is our count: that of
    `generated`, all the model has written, is made only then. What was read from a cache is a part of the prompt.
    """
    report = reported or {}
    read_anew, output = _tokens(report.get("prompt_tokens")), _tokens(report.get("completion_tokens"))
    is_counted = False
    if not read_anew or read_anew * LEAST_REPORTED < prompt:
        read_anew, is_counted = prompt, True
    if output is None or (not output and generated):
        output, is_counted = count(generated), True
    whole = read_anew
    cached, created = _cached(report), _created(report)
    if cached is None or created is None or cached + created > whole:
        return StepUsage(whole, output, is_counted=True)
    return StepUsage(whole - cached - created, output, created, cached, is_counted)


def _cached(report: Mapping[str, Any]) -> int | None:
    """Return how many tokens of the prompt the engine says it had read before; None where that is nonsense."""
    return _first(_details(report).get("cached_tokens"), report.get("cache_read_input_tokens"))


def _created(report: Mapping[str, Any]) -> int | None:
    """Return how many tokens of the prompt the engine says it has put in a cache; None where that is nonsense."""
    details = _details(report)
    return _first(
        report.get("cache_creation_input_tokens"),
        details.get("cache_creation_tokens"),
        details.get("cache_write_tokens"),
    )


def _details(report: Mapping[str, Any]) -> Mapping[str, Any]:
    details = report.get("prompt_tokens_details")
    return details if isinstance(details, Mapping) else {}


def _first(*values: object) -> int | None:
    """Return the first number that is given, 0 where none is, None where it is no number of tokens."""
    return next((_tokens(value) for value in values if value is not None), 0)


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
