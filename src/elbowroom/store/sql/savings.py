"""What caching and compaction have saved, out of the rows of a database."""

from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Integer, cast, func, select

from elbowroom.context.conversation import SavedTokens, Savings
from elbowroom.store.base import SECONDS_A_DAY
from elbowroom.store.sql.dialect import is_postgresql
from elbowroom.store.sql.schema import compactions, conversations, messages, step_usage, turns

LATE_STEPS: Final = 300
"""So many of the newest model calls tell how fast the engine reads."""


def read_savings(connection: Connection, owner: str, zone: int) -> Savings:
    """Return what was saved in an owner's conversations, by their days `zone` minutes east of Greenwich."""

    def day_of(at: Column[float]) -> ColumnElement[int]:
        days = (at + zone * 60.0) / SECONDS_A_DAY
        return cast(func.floor(days) if is_postgresql(connection) else days, Integer).label("day")

    own = conversations.c.owner == owner
    freed = func.sum(compactions.c.before - compactions.c.after).label("freed")
    made = (
        select(compactions.c.conversation, day_of(compactions.c.at), freed, func.count().label("compactions"))
        .join(conversations, conversations.c.id == compactions.c.conversation)
        .where(own, compactions.c.undone.is_(None))
        .group_by(compactions.c.conversation, "day")
    )
    cached = func.sum(step_usage.c.cache_read_tokens).label("cached")
    used = (
        select(turns.c.conversation, day_of(step_usage.c.at), cached)
        .join(turns, turns.c.id == step_usage.c.turn)
        .join(conversations, conversations.c.id == turns.c.conversation)
        .where(own, step_usage.c.cache_read_tokens > 0)
        .group_by(turns.c.conversation, "day")
    )
    days = [
        *(SavedTokens(row.conversation, row.day, int(row.freed), row.compactions) for row in connection.execute(made)),
        *(SavedTokens(row.conversation, row.day, cached=int(row.cached)) for row in connection.execute(used)),
    ]
    return Savings(tuple(days), tuple((row.input, row.first - row.began) for row in connection.execute(_waits())))


def _waits() -> Any:
    """Select the tokens read for the newest turns of one step, when each began, and when its first word came."""
    late = select(step_usage).order_by(step_usage.c.number.desc()).limit(LATE_STEPS).subquery()
    single = (
        select(late.c.turn, func.sum(late.c.input_tokens).label("input"))
        .group_by(late.c.turn)
        .having(func.count() == 1)
        .subquery()
    )
    first = select(func.min(messages.c.at)).where(messages.c.turn == turns.c.id).scalar_subquery()
    joined = select(single.c.input, turns.c.began, first.label("first")).join(turns, turns.c.id == single.c.turn)
    return joined.where(first.is_not(None))
