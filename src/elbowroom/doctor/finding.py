"""What the doctor says about one thing."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: what is so, where, and what to do about it.

    fail: something does not work. warn: it works, and will surprise. ok: it was looked at and is as it should be;
    a `remedy` is then a hint.
    """

    severity: Severity
    check: str
    what: str
    where: str = ""
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it as `{severity, check, what, where, remedy}`."""
        return asdict(self)


def is_healthy(findings: list[Finding]) -> bool:
    """Tell whether nothing was found that does not work."""
    return all(finding.severity != "fail" for finding in findings)


def names(items: Sequence[str], most: int = 8) -> str:
    """Return names as a list for a person."""
    shown = ", ".join(items[:most]) or "none"
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
