"""A set-up examined by the doctor, and what it says of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elbowroom.doctor.examination import examine
from elbowroom.doctor.subject import Finding

AGENT = '[[agents]]\nid = "writer"\nmodel = "tiny"\n'


async def examined(
    folder: Path, settings: str, environ: Mapping[str, str] | None = None, **options: Any
) -> list[Finding]:
    """Write the settings file and return all findings; LM Studio is looked for at no port of this machine's."""
    path = folder / "settings.toml"
    path.write_text(settings, encoding="utf-8")
    options = {"other_ports": (), "internal_ports": (), **options}
    return await examine(path, {"ELBOWROOM_DATA_DIR": str(folder / "data"), **(environ or {})}, {}, **options)


def problems(findings: list[Finding]) -> list[Finding]:
    """Return what is not as it should be."""
    return [found for found in findings if found.severity != "ok"]


def only_problem(findings: list[Finding]) -> Finding:
    """Return the one thing that is wrong."""
    found = problems(findings)
    assert len(found) == 1, found
    assert found[0].remedy
    return found[0]
