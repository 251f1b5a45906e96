"""What must a summary not lose? Conditions, changes, identifiers and files, and whether a text tells them."""

from elbowroom.context.compaction.facts.facts import facts_of
from elbowroom.context.compaction.facts.held import Fact, Held, Weight, lost, stands_in
from elbowroom.context.compaction.facts.identifiers import find_identifiers

__all__ = ["Fact", "Held", "Weight", "facts_of", "find_identifiers", "lost", "stands_in"]
