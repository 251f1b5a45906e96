"""What one model call has used, in tokens that add up."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepUsage:
    """Tokens of a model call, each counted once: `input` are those that the engine has read anew.

    `cache_read` are those of the prompt that it had read before, `cache_creation` those that it says it has put in a
    cache of its own. `is_counted` tells that the numbers are counted here, since the upstream reports none.
    """

    input: int = 0
    output: int = 0
    cache_creation: int = 0
    cache_read: int = 0
    is_counted: bool = False

    @property
    def total(self) -> int:
        """Return all of them together."""
        return self.input + self.output + self.cache_creation + self.cache_read

    @property
    def prompt(self) -> int:
        """Return the whole prompt, wherever it was read from."""
        return self.input + self.cache_creation + self.cache_read

    def __add__(self, other: "StepUsage") -> "StepUsage":
        """Return the sums; they are counted where one of them is."""
        return StepUsage(
            self.input + other.input,
            self.output + other.output,
            self.cache_creation + other.cache_creation,
            self.cache_read + other.cache_read,
            self.is_counted or other.is_counted,
        )

    def as_openai(self) -> dict[str, Any]:
        """Return OpenAI's usage object; one that is counted here says so under `elbowroom`."""
        prompt = self.input + self.cache_creation + self.cache_read
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": self.output,
            "total_tokens": self.total,
        }
        if self.cache_read:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cache_read}
        return {**usage, "elbowroom": {"counted": True}} if self.is_counted else usage
