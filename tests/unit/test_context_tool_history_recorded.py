"""What pruning by rules is worth, over real agents' conversations with real tool servers."""

import pytest
from tool_history import ABSENT, RECORDED, WINDOWS, measured, recorded, total

pytestmark = pytest.mark.skipif(not recorded(RECORDED), reason=ABSENT)


def test_pruning_pays() -> None:
    """Half of tool history goes at least, no error does, a window lasts twice as long, few turns change the prefix."""
    grown, lasted = measured(RECORDED)
    for each in grown:
        assert each.all_errors
        assert each.errors == each.all_errors
        assert each.end_share <= 0.5
    for window in WINDOWS:
        assert total(grown, window).mean_share <= 0.5
    for row in lasted:
        assert row.turns_pruned >= 2 * row.turns_whole
    assert sum(row.changes for row in lasted) * 5 <= sum(row.turns_pruned for row in lasted)
