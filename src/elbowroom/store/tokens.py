"""What is kept of a token, and of what somebody has changed."""

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Literal

Role = Literal["owner", "member", "gateway", "paired"]
"""An owner may all; a member has what is its own; a gateway speaks for others; a paired program chats for whoever
paired it, and changes compactions."""
Did = Literal["added", "changed", "removed"]
ROLES: Final[tuple[Role, ...]] = ("owner", "member", "gateway")
"""The roles that a person gives; pairing gives the other one."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token without what it is; times are Unix seconds.

    `person` is whose it is: all that is asked with it is this person's. It is empty for a program that was paired by
    the holder of the server's own token. `name` is what a paired program calls itself, else the person.
    """

    id: str
    role: Role
    person: str
    name: str
    created: float
    last_used: float | None = None

    @property
    def described(self) -> dict[str, Any]:
        """Return it as JSON values."""
        used = None if self.last_used is None else int(self.last_used)
        return {"id": self.id, "name": self.name, "role": self.role, "created": int(self.created), "last_used": used}


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody has done to `what`, such as "agent writer"; `keys` are those that were changed, without values.

    `person` is empty for the holder of the server's own token, and where the server has none.
    """

    at: float
    person: str
    did: Did
    what: str
    keys: tuple[str, ...] = ()


def hashed(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
