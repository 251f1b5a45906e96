"""How many functions a request enters, and how deep it is in them when the upstream is opened."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRACER = Path(__file__).parents[1] / "support" / "request_trace.py"


@pytest.fixture(scope="module")
def traces() -> Any:
    """Trace both requests in a process of its own, where no other test has loaded anything."""
    ran = subprocess.run([sys.executable, TRACER, "--json"], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("request_kind", "most_functions", "most_frames"), [("raw", 525, 17), ("agent", 750, 21)])
def test_a_request_can_be_followed(traces: Any, request_kind: str, most_functions: int, most_frames: int) -> None:
    """A streamed chat of a raw model, and an agent that calls one tool, enter few functions on few floors."""
    trace = traces[request_kind]
    assert len(trace["frames"]) <= most_frames, trace["frames"]
    assert trace["functions"] <= most_functions
