"""Tells addresses that a client would fetch from elsewhere from those that stay on its machine or its server."""

import re
from html import unescape
from typing import Final

HARMLESS: Final = frozenset({"data", "blob", "app"})
"""Schemes whose content is in the address itself or in the program that shows it."""
SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):")
MAY_BE_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*|/?")
LOCAL_FILE: Final = re.compile(r"file:///[^/]")
BEGINS_FILE: Final = re.compile(r"file:/{0,3}")
IGNORED: Final = re.compile(r"\A[^\x21-\x7e]+|[\x00-\x20]+")
"""What browsers pass over in addresses, and more of it at their beginning."""
BACKSLASH: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
UNFINISHED: Final = re.compile(r"(?:\\|&[#\w]{0,40})\Z")
"""The beginning of an escape, whose meaning depends on what follows."""


def is_remote(written: str, *, is_whole: bool = True) -> bool | None:
    """Tell whether an address, as written in Markdown or HTML, leads elsewhere; None where its end is needed to tell.

    A backslash is read as an escape and as a slash, since programs do either. More text behind the beginning of an
    address never changes an answer that is not None.
    """
    if not is_whole:
        written = UNFINISHED.sub("", written)
    bare = BACKSLASH.sub(r"\1", written)
    if not is_whole:
        bare = UNFINISHED.sub("", bare)
    found = [_leads_elsewhere(form, is_whole) for form in {unescape(written), unescape(bare)}]
    return True if True in found else None if None in found else False


def _leads_elsewhere(address: str, is_whole: bool) -> bool | None:
    address = IGNORED.sub("", address).replace("\\", "/").lower()
    if address.startswith("//"):
        return True
    if scheme := SCHEME.match(address):
        if scheme[1] == "file":
            return _is_on_other_machine(address, is_whole)
        return len(scheme[1]) > 1 and scheme[1] not in HARMLESS  # a single letter is a drive
    if not is_whole and MAY_BE_SCHEME.fullmatch(address):
        return None
    return False


def _is_on_other_machine(address: str, is_whole: bool) -> bool | None:
    if LOCAL_FILE.match(address):
        return False
    return None if not is_whole and BEGINS_FILE.fullmatch(address) else True
