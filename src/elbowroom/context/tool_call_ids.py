"""Tool-call ids that every chat template accepts: nine letters and digits, found by hashing."""

import hashlib
import re
import string

ALPHABET = string.digits + string.ascii_letters
LENGTH = 9
PORTABLE = re.compile(rf"[0-9A-Za-z]{{{LENGTH}}}")


def is_portable(call_id: object) -> bool:
    """Tell whether an id consists of exactly nine ASCII letters and digits."""
    return isinstance(call_id, str) and PORTABLE.fullmatch(call_id) is not None


def portable_id(*seed: str) -> str:
    """Return nine letters and digits that depend on the seed alone: the same on every turn and every machine."""
    digest = hashlib.sha256("\0".join(seed).encode("utf-8", "surrogatepass")).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(LENGTH):
        number, letter = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[letter])
    return "".join(letters)
