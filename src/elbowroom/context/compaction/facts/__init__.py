"""What must a summary not lose? Conditions, changes, identifiers and files, and whether a text tells them."""

from elbowroom.context.compaction.facts.facts import facts_of
from elbowroom.context.compaction.facts.files import State, files_in, files_listed, listed_files
from elbowroom.context.compaction.facts.held import Fact, Held, Weight, lost, stands_in
from elbowroom.context.compaction.facts.identifiers import find_identifiers

__all__ = [
    "Fact",
    "Held",
    "State",
    "Weight",
    "facts_of",
    "files_in",
    "files_listed",
    "find_identifiers",
    "listed_files",
    "lost",
    "stands_in",
]
