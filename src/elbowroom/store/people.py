"""Who may use a server besides the holder of its own token: people, programs that speak for people, and paired ones."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from elbowroom.errors import Conflict, StoreAway, StoreOpening, StoreUnwritable
from elbowroom.store.base import ALONE, HOUR, Servers, owner_key
from elbowroom.store.tokens import Act, Did, Role, Token, hashed
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

log = logging.getLogger(__name__)
TOKENS_BEGIN: Final = "elbp_"
"""How every token begins that is made here."""
TOKEN_BYTES: Final = 32
ID_BYTES: Final = 8
MOST_PAIRED: Final = 50
"""How many programs a person may pair."""
SEEN_SECONDS: Final = 1.0
"""How long a token is taken for valid that another server may have revoked; that one also tells this one at once."""
USED_AGAIN_SECONDS: Final = HOUR
"""How much later a use is than the one in the database when it is written again."""
REVOKED: Final = "revoked"
"""What another server is told of the tokens that this one has revoked or changed."""
UNCHANGED: Final = "The database cannot be written now, so nothing was changed. /health says how it is; try again."
Answer = TypeVar("Answer")


class People:
    """All tokens but the server's own, and who has changed what; of a token a hash is kept and nothing else.

    A token that was seen stays known in memory: without its database a server knows the people whom it has seen.
    """

    def __init__(
        self, store: WriteBehindStore, servers: Servers = ALONE, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._servers = servers
        self._clock = clock
        self._known: dict[str, tuple[Token, float]] = {}
        self._known_from: SqlStore | None = None
        self._requests: dict[str, set[asyncio.Task[object]]] = {}
        servers.offer({REVOKED: self._was_revoked})

    async def holder(self, token: str) -> Token | None:
        """Return what is known of a token that is used now; None where it is no token, or was revoked.

        Raises StoreOpening and StoreAway where that cannot be told.
        """
        key, now, sql = hashed(token), self._clock(), self._store.current
        if sql is not None and sql is not self._known_from:  # another file may know others
            self._known.clear()
            self._known_from = sql
        known, asked = self._known.get(key, (None, 0.0))
        if known is None or not (self._servers.may_remember or time.monotonic() - asked < SEEN_SECONDS):
            known = await self._found(key, known)
        if known is not None and now - (known.last_used or 0.0) > USED_AGAIN_SECONDS:
            known = replace(known, last_used=now)
            self._known[key] = known, time.monotonic()
            _ = self._store.tasks.start(self._store.ask(lambda sql: sql.people.used(key, now)))
        return known

    async def _found(self, key: str, known: Token | None) -> Token | None:
        """Look a token up; where the database does not tell, what is `known` of it counts."""
        if not await self._store.opening_ended(self._store.patience.asking):
            raise StoreOpening
        found = await self._store.ask(lambda sql: sql.people.with_hash(key))
        if found is None:
            if known is None:
                raise StoreAway
            return known
        self._known.pop(key, None)
        for token in found:
            self._known[key] = token, time.monotonic()
            return token
        return None

    async def all(self, roles: Sequence[Role]) -> list[Token]:
        """Return the tokens of these roles, the newest first. Raises StoreAway."""
        found = await self._store.ask(lambda sql: sql.people.all())
        if found is None:
            raise StoreAway
        used = {token.id: token.last_used for token, _ in self._known.values()}  # which may not be written yet
        return [replace(each, last_used=used.get(each.id) or each.last_used) for each in found if each.role in roles]

    async def add(self, person: str, role: Role) -> tuple[Token, str]:
        """Make a token for a person, and return both. Raises Conflict where there is one, and StoreUnwritable."""
        made = Token(owner_key(person), role, person, person, self._clock())
        token = _new_token()
        if not await self._write(lambda sql: sql.people.add(hashed(token), made)):
            raise Conflict(
                f"{person} has a token already. Renew it on the page, or revoke it first; what is {person}'s stays.",
                code="has_token",
                param="name",
            )
        return made, token

    async def pair(self, person: str, name: str) -> tuple[Token, str]:
        """Make a token for a program of a person. Raises Conflict where there are too many, and StoreUnwritable."""
        paired = [token for token in await self.all(["paired"]) if token.person == person]
        if len(paired) >= MOST_PAIRED:
            raise Conflict(
                f"{MOST_PAIRED} programs are paired already. Revoke those that are not used any more, on elbowroom's "
                "page under Connect.",
                code="too_many_paired",
            )
        made, token = Token(secrets.token_hex(ID_BYTES), "paired", person, name, self._clock()), _new_token()
        await self._write(lambda sql: sql.people.add(hashed(token), made))
        return made, token

    async def revoke(self, token_id: str, roles: Sequence[Role]) -> Token | None:
        """Revoke a token of these roles with the programs that its person has paired, and end what they ask for now.

        Returns the token; None where there was none. Raises StoreUnwritable.
        """
        return await self._ended(token_id, await self._write(lambda sql: sql.people.remove(token_id, roles)))

    async def give_role(self, token_id: str, role: Role) -> Token | None:
        """Give a person another role; what is asked now ends, and what is paired goes, as when it is revoked.

        Returns the token; None where there is none. Raises StoreUnwritable.
        """
        return await self._ended(token_id, await self._write(lambda sql: sql.people.change(token_id, {"role": role})))

    async def renew(self, token_id: str) -> tuple[Token, str] | None:
        """Give a person a new token in place of the old one, which ends as when it is revoked.

        Returns both; None where there is none. Raises StoreUnwritable.
        """
        token = _new_token()
        values = {"hash": hashed(token), "created": self._clock(), "last_used": None}
        made = await self._ended(token_id, await self._write(lambda sql: sql.people.change(token_id, values)))
        return None if made is None else (made, token)

    async def _ended(self, token_id: str, gone: Sequence[Token]) -> Token | None:
        """End what is asked with these tokens, at all servers; return the one with this id."""
        ids = [token.id for token in gone]
        await self._was_revoked({"ids": ids})
        if ids:
            await self._servers.ask_all(await self._servers.others(), REVOKED, {"ids": ids})
        return next((token for token in gone if token.id == token_id), None)

    async def note(self, person: str, did: Did, what: str, keys: Sequence[str] = ()) -> None:
        """Keep who has done what; where that cannot be kept, the log has it."""
        act = Act(self._clock(), person, did, what, tuple(keys))
        if not await self._store.tasks.run(self._store.ask(lambda sql: sql.people.note(act))):
            log.warning("This is kept nowhere else: %s %s %s.", person or "the owner", did, what)

    async def acts(self, most: int) -> list[Act]:
        """Return the newest acts, the last one first. Raises StoreAway."""
        found = await self._store.ask(lambda sql: sql.people.acts(most))
        if found is None:
            raise StoreAway
        return found

    @contextlib.contextmanager
    def asking(self, token: Token) -> Iterator[None]:
        """Run a request in the current task, which is cancelled when its token is revoked."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        requests = self._requests.setdefault(token.id, set())
        requests.add(task)
        try:
            yield
        finally:
            requests.discard(task)
            if not requests:
                self._requests.pop(token.id, None)

    async def _was_revoked(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Forget tokens that are revoked or changed, and end what is asked with them, but for that very request."""
        ids = frozenset(given["ids"])
        self._known = {key: known for key, known in self._known.items() if known[0].id not in ids}
        for token_id in ids:
            for request in self._requests.get(token_id, set()) - {asyncio.current_task()}:
                request.cancel()
        return {}

    async def _write(self, change: Callable[["SqlStore"], Awaitable[Answer]]) -> Answer:
        """Change something, also when the caller is cancelled meanwhile. Raises StoreUnwritable, and StoreOpening."""
        if not await self._store.opening_ended(self._store.patience.asking):
            raise StoreOpening
        done = await self._store.tasks.run(self._store.ask(change))
        if done is None:
            raise StoreUnwritable(UNCHANGED)
        return done


def _new_token() -> str:
    return TOKENS_BEGIN + secrets.token_urlsafe(TOKEN_BYTES)
