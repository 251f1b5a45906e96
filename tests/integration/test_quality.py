"""What compactions keep of written conversations: not clearly less than the README of scripts/quality_study says."""

import pytest
from pruners import AGENTS
from quality import measured, short_jobs
from tables import COLUMNS, as_published, published_short

MOST_LOST = 3.0
"""So many points may a figure fall below the published one before this fails."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "pruner",
    [pytest.param(each, marks=() if each == "faithful" else pytest.mark.long) for each in AGENTS],
)
async def test_no_figure_falls(pruner: str) -> None:
    """The short form of `scripts/quality` measures what the document says, within three points, for each agent."""
    [job] = [job for job in short_jobs() if job[1] == pruner]
    published = published_short()
    figures = as_published(await measured(job))
    assert {way for _, way in figures} >= {pruner}
    fallen = [
        f"{name} after {key[0]} compactions with {key[1]}: {now:.1f} instead of {before:.1f}"
        for key, shares in figures.items()
        for name, now, before in zip(COLUMNS.values(), shares, published[key], strict=True)
        if now < before - MOST_LOST
    ]
    assert not fallen, "\n".join(["scripts/quality --write puts new figures into the document:", *fallen])
