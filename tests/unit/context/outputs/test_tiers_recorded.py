"""What pruning by rules is worth, over real agents' conversations with real tool servers."""

import pytest
from tool_history import ABSENT, DOCUMENT, RECORDED, WINDOWS, measured, recorded, tables, total

pytestmark = pytest.mark.skipif(not recorded(RECORDED), reason=ABSENT)


@pytest.mark.slow
def test_pruning_pays() -> None:
    """Half of tool history goes, no error does, a window lasts twice as long, few turns change the prefix.

    The table in the document is the one that is measured.
    """
    grown, lasted = measured(RECORDED)
    for each in grown:
        assert each.all_errors
        assert each.errors == each.all_errors
        assert each.end_share <= 0.55
    for window in WINDOWS:
        assert total(grown, window).mean_share <= 0.5
        assert total(grown, window).end_share <= 0.5
    assert total(grown, 8192).mean_share <= 1.3 * 0.26  # with views of a fifth of the budget it was 26 %
    for window in WINDOWS:
        rows = [row for row in lasted if row.window == window]
        assert sum(row.turns_pruned for row in rows) >= 2 * sum(row.turns_whole for row in rows)
    assert sum(row.changes for row in lasted) * 5 <= sum(row.turns_pruned for row in lasted)
    assert "".join(tables(grown, lasted)) in DOCUMENT.read_text(encoding="utf-8")
