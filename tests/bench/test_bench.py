"""The bench measures what it says, and does not count wrong answers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aged import KINDS
from figures import COMPACTION_FIGURES, FIGURES, START_FIGURES, Row, row_of, row_of_start
from load import LOADS
from report import felt
from rounds import Round, Run, Spread
from servers import AGED, EMPTY
from start_up import Start
from turn_cost import WAYS
from visit import Visit

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
BENCH = REPOSITORY / "scripts" / "benchmarks"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the bench at its smallest."""
    command = [sys.executable, str(BENCH / "bench.py"), "--quick", "--rounds", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(BENCH)}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)


@pytest.mark.long
def test_a_quick_run_reports_every_load_and_counts_every_token(tmp_path: Path) -> None:
    """Every load, over a real upstream and a real relay, leaves its row, and each token was counted once."""
    file = tmp_path / "rounds.json"
    done = bench("--servers", "direct,control", "--json", str(file))
    assert done.returncode == 0, done.stderr
    titles = [figure.title for figure in FIGURES if figure.against != "forgetful"] + [
        figure[0] for figure in COMPACTION_FIGURES
    ]
    for title in titles + [start[1] for start in START_FIGURES if start[0] == "elbowroom"]:
        assert f"| {title} |" in done.stdout
    for way in WAYS:
        assert f"counted by {way}, 501 messages (ms) |" in done.stdout
    raw: dict[str, Any] = json.loads(file.read_text())
    assert set(raw["loads"]) == {load.name for load in LOADS}
    for load in LOADS:
        small = load.quick()
        for seen in (visit for round_ in raw["loads"][load.name]["rounds"] for visit in round_.values()):
            assert seen["broken"] == []
            assert seen["deltas"] == small.answers * small.reply.tokens
            assert len(seen["first_tokens"]) == small.answers


@pytest.mark.long
def test_a_quick_run_of_chats_that_go_on_counts(tmp_path: Path) -> None:
    """Turns, a store that is a year old and memory that grows are measured at their smallest without a wrong answer."""
    file = tmp_path / "rounds.json"
    loads = [f"--only={load}" for load in ("turns", "aged", "growth")]
    done = bench("--servers", "control,elbowroom", *loads, "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "no wrong answer" in done.stdout
    assert "| broken |" not in done.stdout
    seen = {(chats["server"], chats["kind"]) for of in json.loads(file.read_text())["aged"] for chats in of["chats"]}
    kinds = {(kind.name, kind.with_empty) for kind in KINDS}
    assert seen == {
        *(("control", name) for name, _ in kinds),
        *((f"elbowroom{AGED}", name) for name, _ in kinds),
        *((f"elbowroom{EMPTY}", name) for name, with_empty in kinds if with_empty),
    }


def test_the_sentence_for_a_reader_has_three_numbers_of_the_run() -> None:
    """The first word after a year, a turn's CPU and the idle server's memory; without one of them nothing is said."""

    def row(title: str, value: float) -> Row:
        return Row(title, {"elbowroom": Spread(value, 0, 0)}, Spread(value, 0, 0))

    rows = [
        row("a year of conversations, next turn: time to first content, p50 (ms)", 2.5),
        row("CPU per turn that needs nothing, counted by the model's file, 5 messages (ms)", 4.25),
        row("RSS idle (MiB)", 78),
    ]
    assert "2.5 ms later" in felt(rows)
    assert "4.25 ms of CPU" in felt(rows)
    assert "78 MiB" in felt(rows)
    assert felt(rows[1:]) == ""


@pytest.mark.parametrize(("own", "verdict"), [((0.4, 0.5), "pass"), ((0.6, 0.5), "MISSED")])
def test_a_start_is_held_against_the_controls_of_its_round(own: tuple[float, float], verdict: str) -> None:
    """The median of the rounds' ratios is at most two and a half."""
    starts = [Start("elbowroom", seconds, 50, 70, 90, 0, ()) for seconds in own]
    starts += [Start("control", 0.2, 30, 30, 30, 0, ()) for _ in own]
    assert row_of_start(starts)[0].verdict == verdict


@pytest.mark.slow
def test_a_server_that_loses_a_token_is_caught() -> None:
    """Numbers of a server with wrong answers are called broken, and a checking run fails."""
    relay = f"{sys.executable} {HERE / 'faulty_relay.py'} {{port}} {{upstream}}"
    done = bench("--servers", "elbowroom", "--command", relay, "--only", "many_streams", "--only", "paced", "--check")
    assert done.returncode == 1, done.stderr
    assert "WRONG ANSWER from elbowroom: the text is wrong from character" in done.stdout


@pytest.mark.long
def test_another_checkout_is_measured_in_the_same_rounds() -> None:
    """`--against` starts the other checkout's elbowroom, and the table shows both with their difference."""
    done = bench("--servers", "elbowroom,other", "--against", str(REPOSITORY), "--only", "first_token")
    assert done.returncode == 0, done.stderr
    assert "| measure | direct | control | elbowroom | other | difference | compared |" in done.stdout
    assert "WRONG" not in done.stdout


def seen(server: str, cpu: float, broken: tuple[str, ...] = ()) -> Visit:
    """Return a visit of 1,000 frames that cost so many CPU seconds."""
    return Visit(server, units=1000, wall=1.0, cpu=cpu, first_tokens=(0.001,), deltas=1000, broken=broken)


def rounds(*costs: tuple[float, float]) -> tuple[Round, ...]:
    """Return rounds from the CPU seconds of the control and of elbowroom."""
    return tuple({"control": seen("control", low), "elbowroom": seen("elbowroom", high)} for low, high in costs)


def test_ratios_are_formed_within_a_round() -> None:
    """The table shows the median of the rounds' ratios, which differs from the ratio of the medians."""
    row = row_of(FIGURES[0], Run(LOADS[0], rounds((1.0, 1.5), (1.2, 2.4), (1.4, 1.6))))
    assert row.compared is not None
    assert row.compared.median == pytest.approx(1.5)
    assert (row.compared.low, row.compared.high) == pytest.approx((1.6 / 1.4, 2.0))
    assert row.verdict == "pass"


def test_differences_from_another_checkout_are_formed_within_a_round() -> None:
    """The difference is the median of the rounds' differences, in the row's unit."""
    costs = [(2.0, 1.0), (3.0, 2.5), (4.0, 1.0)]
    pairs = tuple({"elbowroom": seen("elbowroom", own), "other": seen("other", other)} for own, other in costs)
    difference = row_of(FIGURES[0], Run(LOADS[0], pairs)).difference
    assert difference is not None
    assert (difference.median, difference.low, difference.high) == pytest.approx((1000, 500, 3000))


@pytest.mark.parametrize(
    ("costs", "verdict"),
    [
        pytest.param([(1.0, 1.5), (1.1, 1.7)], "pass", id="at most 1.6 times the control"),
        pytest.param([(1.0, 1.7), (1.1, 2.0)], "MISSED", id="over 1.6 times the control"),
        pytest.param([(1.0, 1.0), (1.6, 1.6)], "void", id="the control itself is unsteady"),
    ],
)
def test_a_target_is_judged_only_on_a_steady_machine(costs: list[tuple[float, float]], verdict: str) -> None:
    """A control that costs over 1.5 times as much in one round as in another makes the rounds void."""
    assert row_of(FIGURES[0], Run(LOADS[0], rounds(*costs))).verdict == verdict
