"""The rows of tokens, and of who has changed what."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, func, insert, select, update

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
        found = _found(connection, token_id, roles)
        connection.execute(delete(tokens).where(tokens.c.id.in_([token.id for token in found])))
        return [*found, *_unpaired(connection, found)]

    @writing
    def change(self, connection: Connection, token_id: str, values: Mapping[str, Any]) -> list[Token]:
        """Change a person's token; return it as it is then, and the programs that the person had paired.

        Those are deleted: they may more than a member, and whoever had the token before may have paired them.
        """
        connection.execute(update(tokens).where(tokens.c.id == token_id, tokens.c.role.in_(ROLES)).values(**values))
        found = _found(connection, token_id, ROLES)
        return [*found, *_unpaired(connection, found)]

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


def _found(connection: Connection, token_id: str, roles: Sequence[Role]) -> list[Token]:
    """Return the token with this id, if it has one of these roles."""
    rows = connection.execute(select(tokens).where(tokens.c.id == token_id, tokens.c.role.in_(roles)))
    return [_token(row) for row in rows]


def _unpaired(connection: Connection, found: Sequence[Token]) -> list[Token]:
    """Delete the programs that these persons have paired, and return them."""
    persons = [encoded(token.person) for token in found if token.role in ROLES]
    paired = and_(tokens.c.role == "paired", tokens.c.person.in_(persons))
    gone = [_token(row) for row in connection.execute(select(tokens).where(paired))]
    connection.execute(delete(tokens).where(paired))
    return gone


def _act(row: Row[Any]) -> Act:
    return Act(row.at, decoded_text(row.person), row.did, decoded_text(row.what), tuple(json.loads(row.keys)))


def _token(row: Row[Any]) -> Token:
    return Token(row.id, row.role, decoded_text(row.person), decoded_text(row.name), row.created, row.last_used)
