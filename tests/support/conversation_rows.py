"""Rows of conversations, written into a store's file as they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, insert, inspect, select

from elbowroom.store.sql.schema import (
    compactions,
    conversations,
    message_parts,
    messages,
    metadata,
    queue,
    queue_receipts,
    step_usage,
    turns,
)

TABLES = (conversations, turns, messages, message_parts, step_usage, compactions, queue, queue_receipts)


@dataclass(frozen=True, slots=True)
class Stored:
    """A conversation: its id, when it was used last, how many messages it has and how large each is."""

    id: str
    updated: float
    messages: int = 3
    characters: int = 10


def put(path: Path, *stored: Stored) -> None:
    """Write conversations, each with one row in each table that a file has, and so many messages."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        for one in stored:
            for name, rows in _rows(one).items():
                if inspect(connection).has_table(name):
                    connection.execute(insert(metadata.tables[name]), rows)
    engine.dispose()


def held(path: Path) -> dict[str, set[str]]:
    """Return which conversations have rows, for each table that has any."""
    engine = create_engine(f"sqlite:///{path}")
    own = {"conversations": "id", "message_parts": "message", "step_usage": "turn"}
    with engine.connect() as connection:
        found = {
            table.name: {str(key).split(",")[0] for key in connection.scalars(select(column))}
            for table in TABLES
            for column in [table.c[own.get(table.name, "conversation")]]
        }
    engine.dispose()
    return {name: ids for name, ids in found.items() if ids}


def _rows(one: Stored) -> dict[str, list[dict[str, Any]]]:
    numbers = ("input", "output", "cache_creation", "cache_read")
    tokens = {f"{name}_tokens": 1 for name in numbers} | {"is_counted": False}
    texts = dict.fromkeys(("name", "agent", "title"), '""')
    turn = f"{one.id},turn"
    used = {"created": 0.0, "updated": one.updated}
    plain = {"turn": turn, "key": None, "parent": "", "fields": "{}", "status": "complete", "at": one.updated}
    names = [f"{one.id},{number}" for number in range(one.messages)]
    part = {"position": 0, "kind": "text", "status": "complete", "content": "x" * one.characters}
    ended = {"parent": "", "key": "", "agent": '""', "status": "complete", "began": 0.0, "has_more": False}
    counts = {"total_tokens": 4, "steps": 1, "compactions": 1}
    compacted = {"before": 2, "after": 1, "rung": "digest", "at": 0.0}
    waits = {"id": f"{one.id},queued", "message": "{}", "mode": "steer", "at": 0.0, "turn": ""}
    return {
        "conversations": [{"id": one.id, "owner": "me"} | texts | used | tokens | counts],
        "turns": [{"id": turn, "conversation": one.id} | ended],
        "messages": [{"id": name, "conversation": one.id} | plain for name in names],
        "message_parts": [{"message": name} | part for name in names],
        "step_usage": [{"turn": turn, "model": '""', "at": 0.0} | tokens],
        "compactions": [{"conversation": one.id} | compacted],
        "queue": [{"conversation": one.id} | waits],
        "queue_receipts": [{"id": f"{one.id},queued", "conversation": one.id, "fingerprint": ""}],
    }
