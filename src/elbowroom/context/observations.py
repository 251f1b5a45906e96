"""The events of a running server that may be counted, none of which holds a word of a conversation."""

from elbowroom.context.conversation import ContextFill, StepUsage


class Observations:
    """Is told of events, a few for each model call; this class ignores them all.

    A `model` is named as raw models are, with its provider's id in front. Times are in seconds, sizes in tokens.
    """

    def step_used(self, model: str, used: StepUsage, fill: ContextFill | None) -> None:
        """A model step has used these tokens and filled its window so far; `fill` is None for an unmanaged window."""

    def pruner_used(self, model: str, used: StepUsage) -> None:
        """A call of the pruning agent has used these tokens."""

    def prompt_counted(self, model: str, ours: int, reported: int) -> None:
        """A prompt has this size by our count, and this one by the upstream's report."""

    def cache_lost(self, model: str, reason: str, tokens: int, seconds: float | None) -> None:
        """The engine had to read so many tokens again, in so many seconds; None where nobody knows how long."""

    def compacted(self, rung: str, seconds: float, freed: int, verdict: str) -> None:
        """A conversation was compacted; `verdict` is pass, soft fail or hard fail."""

    def room_chosen(self, way: str) -> None:
        """Room is made in this way, which costs less than another: mask, plan or code."""

    def recalled(self, passages: int, tokens: int) -> None:
        """So many passages came back unasked with a message, which take so many tokens."""

    def not_compacted(self) -> None:
        """A conversation could not be made any shorter."""

    def restarted(self, times: int) -> None:
        """A turn had to cut or block model calls so many times, and sent them again."""

    def overflowed(self, model: str) -> None:
        """The engine had no room for a prompt that fits by our count."""

    def refused_again(self, model: str) -> None:
        """A prompt that cannot fit was refused from memory, since the same was asked several times within a minute."""

    def truncated(self, model: str) -> None:
        """The engine has silently read less than it was sent."""

    def tool_called(self, *, has_failed: bool) -> None:
        """A tool of the server has answered a model's call."""

    def upstream_failed(self, provider: str, error: str) -> None:
        """A model call ended with an error; `error` is the name of its class."""

    def machine_left(self, machine: str, why: str) -> None:
        """Note that a request went to another machine: this one was `full`, or failed with an error of this name."""

    def answered(self, agent: str, kind: str, outcome: str, seconds: float, first_token: float | None) -> None:
        """An answer has ended, whose first token came after `first_token`; None where nothing was said.

        `kind` is agent, model or task. `outcome` is whole, stopped, left, or the status of an error.
        """

    def committed(self, seconds: float) -> None:
        """The store has committed changes."""

    def store_failed(self) -> None:
        """The store could not be opened, read or written."""
