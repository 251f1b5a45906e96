"""The command line of `elbowroom doctor`."""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from elbowroom.settings.load import Flags


def add_doctor(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether a person named it, `flags` what flags set."""
    doctor = add_parser("doctor", parents=list(parents), help="look at the set-up and say how to mend it")
    doctor.add_argument("--probe", action="store_true", help="also ask each loaded model for one token, at most three")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.add_argument(
        "--log-level", default="error", choices=["debug", "info", "warning", "error"], help="for reports"
    )
    doctor.set_defaults(
        run=lambda options: run(*place(options), flags(options), probes=options.probe, json=options.json)
    )


def run(path: Path, is_named: bool, flags: Flags, *, probes: bool, json: bool) -> int:
    """Examine the set-up and print what was found; returns 1 where something does not work, else 0."""
    from elbowroom.doctor.examination import as_json, as_text, examine
    from elbowroom.doctor.subject import is_healthy

    findings = asyncio.run(examine(path, os.environ, flags, must_exist=is_named, probes=probes))
    text = as_json(findings) if json else as_text(findings, shutil.get_terminal_size().columns)
    sys.stdout.write(f"{text}\n")
    return 0 if is_healthy(findings) else 1
