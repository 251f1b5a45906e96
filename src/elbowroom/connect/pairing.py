"""The code that a person types into another program to pair it: made by the server, and asked for from a terminal."""

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

from elbowroom.connect.asking import asked
from elbowroom.errors import ElbowroomError, Forbidden, Gone, TooManyTries

ROUTE: Final = "/api/pairing"
LETTERS: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without those that people take for others: I, L, O, 0 and 1."""
HALF: Final = 4
VALID_SECONDS: Final = 600
MOST_TRIES: Final = 5
ANEW: Final = "Make a new one on elbowroom's page under Connect, or with `elbowroom obsidian pair`."


class PairingCode:
    """The one code that is valid now, if any: for ten minutes, one use and five tries; a new one replaces it.

    `clock` returns seconds, and is never set back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._code = ""
        self._until = 0.0
        self._wrong = 0

    def make(self) -> str:
        """Return a new code, such as ABCD-2345."""
        self._code = "".join(secrets.choice(LETTERS) for _ in range(2 * HALF))
        self._until = self._clock() + VALID_SECONDS
        self._wrong = 0
        return f"{self._code[:HALF]}-{self._code[HALF:]}"

    def use(self, given: str) -> None:
        """Use the code up. Raises Forbidden for a wrong one, Gone where none is valid, TooManyTries after five."""
        if self._wrong >= MOST_TRIES:
            raise _too_many()
        if not self._code or self._clock() >= self._until:
            self._code = ""
            raise Gone(f"The code is not valid any more: it lasts ten minutes and one use. {ANEW}", code="code_expired")
        typed = given.replace("-", "").replace(" ", "").upper().encode("utf-8", "replace")
        if hmac.compare_digest(typed, self._code.encode()):
            self._code = ""
            return
        self._wrong += 1
        left = MOST_TRIES - self._wrong
        if not left:
            self._code = ""
            raise _too_many()
        tries = "1 more try" if left == 1 else f"{left} more tries"
        raise Forbidden(f"This is not the code that elbowroom shows. It takes {tries}.", code="wrong_code")


def _too_many() -> TooManyTries:
    return TooManyTries(f"Too many wrong codes were tried, so the code is not valid any more. {ANEW}")


def ask_for_code(address: str, token: str) -> tuple[str, int]:
    """Return a new code of the elbowroom at an address, and until when it is valid, in Unix seconds.

    Raises ElbowroomError.
    """
    made = asked(address, token, ROUTE, ", and only a running one makes codes. Start it first.", method="POST")
    code, expires = made.get("code"), made.get("expires")
    if not isinstance(code, str) or not isinstance(expires, int):
        raise ElbowroomError(f"What answers at {address} is no elbowroom. Choose its port with --port.")
    return code, expires
