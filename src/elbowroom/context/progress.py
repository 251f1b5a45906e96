"""How far a pruning agent has come with one conversation, in numbers and in words."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Which attempt it is, which part of how many is read, and how much of the answer is there.

    `written` are tokens of at most `limit`; both are 0 while the agent reads.
    """

    attempt: int = 1
    part: int = 1
    parts: int = 1
    written: int = 0
    limit: int = 0

    @property
    def in_words(self) -> str:
        """Return what is worth telling in a few words; nothing of a first attempt in one part that is being read."""
        words = []
        if self.parts > 1:
            words.append(f"part {self.part} of {self.parts}")
        if self.attempt > 1:
            words.append(f"attempt {self.attempt}")
        if self.written:
            words.append(f"{self.written:,} of at most {self.limit:,} tokens")
        return ", ".join(words)
