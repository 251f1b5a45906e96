"""Which messages may hold a text? An index of letters, in each database's own full-text search."""

from elbowroom.store.sql.search.text_index import AGAIN_SECONDS, TextIndex, found_in_index, not_indexed
from elbowroom.store.sql.search.texts import SEARCHED

__all__ = ["AGAIN_SECONDS", "SEARCHED", "TextIndex", "found_in_index", "not_indexed"]
