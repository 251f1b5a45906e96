"""The rows of tokens, and of who has changed what."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, func, insert, or_, select, update

from elbowroom.store.base import decoded_text, encoded
from elbowroom.store.sql.asking import reading, writing
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.schema import acts, tokens
from elbowroom.store.tokens import ROLES, Act, Role, Token

MOST_ACTS: Final = 1000
"""How many are kept; the oldest go."""


@dataclass(frozen=True, slots=True)
class SqlPeople:
    """Tokens and acts in a database. All methods raise StoreUnavailable."""

    database: Database

    @reading
    def with_hash(self, connection: Connection, token_hash: str) -> list[Token]:
        """Return the token with this hash, if there is one."""
        rows = connection.execute(select(tokens).where(tokens.c.hash == token_hash))
        return [_token(row) for row in rows]

    @reading
    def all(self, connection: Connection) -> list[Token]:
        """Return all tokens, the newest first."""
        own = tokens.c
        return [_token(row) for row in connection.execute(select(tokens).order_by(own.created.desc(), own.id))]

    @writing
    def add(self, connection: Connection, token_hash: str, token: Token) -> bool:
        """Keep a new token; tell whether there was none with its id."""
        if connection.execute(select(tokens.c.id).where(tokens.c.id == token.id)).first() is not None:
            return False
        row = {"hash": token_hash, "id": token.id, "role": token.role, "created": token.created}
        connection.execute(insert(tokens).values(**row, person=encoded(token.person), name=encoded(token.name)))
        return True

    @writing
    def remove(self, connection: Connection, token_id: str, roles: Sequence[Role]) -> list[Token]:
        """Delete a token that has one of these roles, with the programs that its person has paired; return them."""
        own = tokens.c
        going = select(tokens).where(own.id == token_id, own.role.in_(roles))
        found = [_token(row) for row in connection.execute(going)]
        for token in found:
            is_its = own.id == token.id
            if token.role in ROLES:
                is_its = or_(is_its, and_(own.role == "paired", own.person == encoded(token.person)))
            gone = connection.execute(select(tokens).where(is_its)).all()
            connection.execute(delete(tokens).where(is_its))
            return [_token(row) for row in gone]
        return []

    @writing
    def used(self, connection: Connection, token_hash: str, now: float) -> None:
        """Note when a token was used."""
        connection.execute(update(tokens).where(tokens.c.hash == token_hash).values(last_used=now))

    @writing
    def note(self, connection: Connection, act: Act) -> bool:
        """Keep an act, for which the oldest may go."""
        row = {"at": act.at, "person": encoded(act.person), "did": act.did}
        connection.execute(insert(acts).values(**row, what=encoded(act.what), keys=encoded(act.keys)))
        newest = select(func.max(acts.c.number)).scalar_subquery()
        connection.execute(delete(acts).where(acts.c.number <= newest - MOST_ACTS))
        return True

    @reading
    def acts(self, connection: Connection, most: int) -> list[Act]:
        """Return the newest acts, the last one first."""
        rows = connection.execute(select(acts).order_by(acts.c.number.desc()).limit(most))
        return [_act(row) for row in rows]


def _act(row: Row[Any]) -> Act:
    return Act(row.at, decoded_text(row.person), row.did, decoded_text(row.what), tuple(json.loads(row.keys)))


def _token(row: Row[Any]) -> Token:
    return Token(row.id, row.role, decoded_text(row.person), decoded_text(row.name), row.created, row.last_used)
