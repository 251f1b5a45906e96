"""What the tools are that `tools` of an agent may name, for the person who chooses."""

from collections.abc import Mapping
from typing import Final

TOOL_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "vault": "All vault tools that the settings allow; needs vault.path.",
    "vault.list": "Lists folders and notes of the vault; needs vault.path.",
    "vault.read": "Reads a note, or a part of it; needs vault.path.",
    "vault.outline": "Shows the headings of a note; needs vault.path.",
    "vault.search": "Searches the notes of the vault; needs vault.path.",
    "vault.count": "Counts the notes that have certain words, a tag or a property; needs vault.path.",
    "vault.create": "Writes a new note; needs vault.path and vault.write.",
    "vault.append": "Adds text to the end of a note; needs vault.path and vault.write.",
    "vault.patch": "Changes a part of a note; needs vault.path and vault.write.",
    "vault.rename": "Renames or moves a note and updates the links to it; needs vault.path and vault.write.",
    "vault.delete": "Moves a note to the trash; needs vault.path and vault.write.",
    "vault.undo": "Takes a change of a note back; needs vault.path and vault.write.",
    "tool_output_cache": "Reads and searches results of earlier calls; agents with other tools have it by themselves.",
    "save_memory": "Saves something to remember beyond the conversation; needs memory.enabled.",
    "search_memory": "Searches what was saved to remember; needs memory.enabled.",
}
