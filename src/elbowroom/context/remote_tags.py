"""Tells HTML tags that make a client fetch something from elsewhere, read as browsers read them."""

import re
from typing import Final

from elbowroom.context.remote_address import is_remote

PICTURES: Final = frozenset(
    {"img", "image", "feimage", "use", "source", "input", "body", "table", "tbody", "tr", "th", "td"}
)
OTHERS: Final = frozenset({"audio", "video", "track", "embed", "object", "frame", "iframe", "link", "base"})
TAGS: Final = PICTURES | OTHERS
"""Those that show something by themselves, or change where relative addresses lead."""
ADDRESSES: Final = frozenset(["background", "data", "dynsrc", "href", "lowsrc", "poster", "src", "xlink:href"])
LISTS_OF_ADDRESSES: Final = frozenset({"srcset", "imagesrcset"})
TAG_NAME: Final = re.compile(r"<([A-Za-z]*)")
ENDS_NAME: Final = frozenset("\t\n\f\r />")
BETWEEN: Final = re.compile(r"[\t\n\f\r /]*")
ATTRIBUTE: Final = re.compile(r"=?[^\t\n\f\r />=]*")
EQUALS: Final = re.compile(r"[\t\n\f\r ]*(?:(=)[\t\n\f\r ]*)?")
VALUE: Final = re.compile(r"\"(?P<double>[^\"]*)(?P<end>\"?)|'(?P<single>[^']*)(?P<stop>'?)|(?P<bare>[^\t\n\f\r >]*)")
BECOMES_LINK: Final = re.compile(r"<|\]\(|^(?:https?|ftp):|^www\.", re.IGNORECASE)
"""What programs may make a link of where they do not see that it is in a tag: then the tag has that link's address."""
BETWEEN_ADDRESSES: Final = re.compile(r"[\s,]+")
STYLE_FETCHES: Final = re.compile(r"(?:url|src|image|image-set|cross-fade)\s*\(|[\\&]", re.IGNORECASE)
QUOTE_MARKS: Final = re.compile(r"(?<=[\n\r])[ \t>]*>")
"""What stands before the lines of a quotation in Markdown and is no part of a tag that goes on there."""
BLANK_LINE: Final = re.compile(r"\n[ \t]*\n")


def tag_fetches(text: str, *, is_whole: bool) -> bool | None:
    """Tell whether the tag that a text begins with fetches anything; None where more text is needed to tell."""
    name = TAG_NAME.match(text)
    if name is None:
        return False
    if name.end() == len(text):
        return None if not is_whole and any(tag.startswith(name[1].lower()) for tag in TAGS) else False
    if name[1].lower() not in TAGS or text[name.end()] not in ENDS_NAME:
        return False
    attributes = text[name.end() :]
    found = {_attributes_fetch(attributes, is_whole=is_whole), _quoted_fetches(attributes, is_whole=is_whole)}
    return True if True in found else None if None in found else False


def _quoted_fetches(text: str, *, is_whole: bool) -> bool | None:
    """Tell the same for a tag within a quotation, which ends with a blank line."""
    if end := BLANK_LINE.search(text):
        text, is_whole = text[: end.start()], True
    return _attributes_fetch(QUOTE_MARKS.sub(" ", text), is_whole=is_whole)


def _attributes_fetch(text: str, *, is_whole: bool) -> bool | None:
    """Tell whether one of the attributes at the beginning of a text, up to the tag's end, fetches something."""
    at = _end(BETWEEN, text, 0)
    while at < len(text) and text[at] != ">":
        behind_name = _end(ATTRIBUTE, text, at)
        name = text[at:behind_name].lower()
        if BECOMES_LINK.search(name):
            return True
        at = _end(EQUALS, text, behind_name)
        if "=" in text[behind_name:at] and (value := VALUE.match(text, at)):
            at = value.end()
            is_closed = is_whole or at < len(text) or bool(value["end"] or value["stop"])
            if BECOMES_LINK.search(value["bare"] or ""):
                return True
            written = value["double"] or value["single"] or value["bare"] or ""
            if (fetches := _fetches(name, written, is_whole=is_closed)) is not False:
                return fetches
        at = _end(BETWEEN, text, at)
    return False if is_whole or at < len(text) else None


def _fetches(name: str, value: str, *, is_whole: bool) -> bool | None:
    if name in ADDRESSES:
        return is_remote(value, is_whole=is_whole)
    if name in LISTS_OF_ADDRESSES:
        *before, last = BETWEEN_ADDRESSES.split(value)
        return any(map(is_remote, before)) or is_remote(last, is_whole=is_whole)
    if name == "style":
        return STYLE_FETCHES.search(value) is not None
    return name == "srcdoc" and bool(value)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
