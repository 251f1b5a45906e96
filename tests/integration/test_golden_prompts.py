"""What reaches the model, the client and the store in some three hundred journeys is what is frozen in tests/golden."""

import sys
from pathlib import Path
from subprocess import run

import pytest
from golden import FROZEN, differences, file_of
from golden_journeys import journeys

PLAYER = Path(__file__).parents[1] / "support" / "golden.py"
SAMPLE = ("chatml compacted", "llama3 talk", "gemma edited", "agent by hand with a focus", "harmony server tools")


def played(*options: str) -> str:
    """Play journeys in processes of their own; return what is told of those that have changed."""
    done = run([sys.executable, str(PLAYER), *options], capture_output=True, text=True, check=False)
    assert "journeys, " in done.stdout, done.stderr
    return done.stdout if done.returncode else ""


@pytest.mark.slow
def test_a_sample_is_as_frozen() -> None:
    """A few journeys of different kinds make the very same prompts, frames and rows."""
    assert not {name: found for name in SAMPLE if (found := differences(name))}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_all_journeys_are_as_frozen() -> None:
    """At least three hundred journeys are played, each is frozen, and nothing else is."""
    names = [journey.name for journey in journeys()]
    assert len(names) >= 300
    assert {file_of(name) for name in names} == set(FROZEN.glob("*.txt"))
    assert played() == ""
