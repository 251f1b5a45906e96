"""The short form of scripts/soak: a minute of people, faults and kills."""

from pathlib import Path

import pytest
from soak import arguments, soak
from soak_picture import picture
from soak_report import rows, text


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_minute_of_everything(tmp_path: Path) -> None:
    """Nothing that a client had for half a second is lost by a kill, no prompt is too long, and nothing answers 500."""
    options = arguments(["--minutes", "1", "--kill-every", "12", "--rate", "2", "--seed", "7"])
    steady, killed = await soak(options, tmp_path)
    table = rows(steady, killed)
    found = {row.title: row.value for row in table}
    assert found["kills (SIGKILL)"] >= 2
    assert found["words received by clients"] > 500
    assert found["prompts sent upstream"] > 20
    assert found["prompts over the window"] == 0
    assert found["answers with status 500"] == 0
    assert (steady.found.lost, killed.found.lost) == (0, 0), killed.found.oldest_missing
    assert {"cut", "status 500"} & {*steady.studio.faults, *killed.studio.faults}
    assert "| words received by clients |" in text({}, table, steady, killed)
    assert picture(steady.found, killed.found).count("<path") > 10
