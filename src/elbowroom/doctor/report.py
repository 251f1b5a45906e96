"""The findings as a person reads them at a terminal, and as JSON."""

import json
import textwrap
from collections.abc import Sequence
from typing import Final

from elbowroom.doctor.finding import Finding, is_healthy
from elbowroom.logs.one_line import escaped
from elbowroom.logs.redaction import Redactor

MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
NARROWEST: Final = 60
WIDEST: Final = 120


def clean(findings: Sequence[Finding], redactor: Redactor) -> list[Finding]:
    """Return the findings without secrets and without control characters."""

    def safe(text: str) -> str:
        return redactor.clean(escaped(text))

    return [
        Finding(found.severity, safe(found.check), safe(found.what), safe(found.where), safe(found.remedy))
        for found in findings
    ]


def as_json(findings: Sequence[Finding]) -> str:
    """Return `{"healthy": bool, "findings": [{severity, check, what, where, remedy}]}`."""
    table = {"healthy": is_healthy(list(findings)), "findings": [found.as_json() for found in findings]}
    return json.dumps(table, ensure_ascii=False, indent=2)


def as_text(findings: Sequence[Finding], width: int) -> str:
    """Return one paragraph for each finding, in columns of so many characters, and a sum at the end."""
    width = min(WIDEST, max(NARROWEST, width))
    label = max((len(found.check) for found in findings), default=0)
    paragraphs = [_paragraph(found, label, width) for found in findings]
    return "\n".join([*paragraphs, "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """Return the sum of all findings in a sentence."""
    failed = sum(found.severity == "fail" for found in findings)
    warned = sum(found.severity == "warn" for found in findings)
    if not failed and not warned:
        return "Nothing is wrong."
    parts = [_number(failed, "problem"), _number(warned, "warning")]
    return f"{' and '.join(part for part in parts if part)}."


def _paragraph(found: Finding, label: int, width: int) -> str:
    head = f"{MARKS[found.severity]}  {found.check:<{label}}  "
    indent = " " * len(head)
    where = f"{found.where}: " if found.where and found.severity != "ok" else ""
    lines = _wrapped(f"{where}{found.what}", width - len(indent))
    if found.remedy:
        arrow = "-> "
        remedy = _wrapped(found.remedy, width - len(indent) - len(arrow))
        lines += [arrow + remedy[0], *(" " * len(arrow) + line for line in remedy[1:])]
    return "\n".join([head + lines[0], *(indent + line for line in lines[1:])])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _number(count: int, name: str) -> str:
    return f"{count} {name}{'s' if count > 1 else ''}" if count else ""
