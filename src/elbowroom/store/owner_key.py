"""What stands for an owner in the tables."""

import hashlib
from typing import Final

from elbowroom.context.outputs import utf8

KEY_BYTES: Final = 16


def owner_key(owner: str) -> str:
    """Return a hash of an owner, for any text may be one, also such as no database takes."""
    return hashlib.blake2b(utf8(owner), digest_size=KEY_BYTES).hexdigest()
