"""The usage of a request whose engine reports none, by our own count."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elbowroom.agents.answer import COUNTED
from elbowroom.agents.step_counter import StepCounter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unreported:
    """A request that was answered without a report: its body, and all that the model generated."""

    body: Mapping[str, Any]
    generated: str

    async def counted(self, counter: StepCounter) -> dict[str, Any] | None:
        """Return a usage object that says it is none of the engine's; None where this cannot be counted.

        Of a tool call only name and arguments are counted: what a model writes around them never arrives.
        """
        try:
            prompt = (await counter.size(self.body)).count.tokens
        except Exception as error:  # noqa: BLE001  # the answer is there already, and must not be lost for its count
            log.info("A prompt without a report could not be counted either: %s", error)
            return None
        completion = counter.text(self.generated)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "elbowroom": COUNTED,
        }
