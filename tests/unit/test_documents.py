"""Holds that what the documents link to is there."""

import re
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
DOCUMENTS: Final = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted(REPOSITORY.glob("docs/**/*.md")),
    *sorted(REPOSITORY.glob("scripts/*/README.md")),
    REPOSITORY / "obsidian" / "README.md",
]
FENCED: Final = re.compile(r"^( *)(`{3,})[^`\n]*\n.*?^\1\2$", re.MULTILINE | re.DOTALL)
TARGET: Final = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING: Final = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@cache
def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = HEADING.findall(FENCED.sub("", document.read_text(encoding="utf-8")))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in plain}


def dead(document: Path) -> list[str]:
    """Return the links of a document that lead to no file, or to no heading of one."""
    found = []
    for match in TARGET.finditer(FENCED.sub("", document.read_text(encoding="utf-8"))):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        file = (document.parent / name).resolve() if name else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            found.append(target)
    return found


PAGES: Final = sorted(REPOSITORY.glob("docs/**/*.md"))
FOR_PEOPLE: Final = sorted(REPOSITORY.glob("docs/*.md"))
MOST_WORDS: Final = 60_000


def words_of(*pages: Path) -> list[str]:
    """Return what stands between blanks on some pages, as `wc -w` counts it."""
    return [word for page in pages for word in page.read_text(encoding="utf-8").split()]


def test_the_documents_can_be_read() -> None:
    """The pages for people have at most 60,000 words; so have all of them, but for the bars and dashes of tables."""
    assert len(words_of(*FOR_PEOPLE)) <= MOST_WORDS
    assert len([word for word in words_of(*PAGES) if re.search(r"\w", word)]) <= MOST_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    """Below the heading stand two sentences that tell what the reader gets, before any table, list or command."""
    heading, beginning, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert heading.startswith("# ")
    assert beginning[0].isalpha() or beginning.startswith(("[", "`"))
    assert len(re.findall(r"[.:](?=\s|$)", beginning)) >= 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_lead_to_files_and_headings(document: Path) -> None:
    """Every link of a document within the repository leads to a file that exists, and to a heading in it."""
    assert not dead(document)
