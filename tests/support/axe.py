"""axe-core: finds what keeps people out who cannot see a page well."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from playwright.async_api import Page

AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
"""Run this in a page before it is asked."""


async def found_by_axe(page: Page, without: Sequence[str] = ()) -> list[str]:
    """Return each finding with its impact and where it is, but for those of the rules that are left out."""
    options = {"rules": {rule: {"enabled": False} for rule in without}}
    result: dict[str, Any] = await page.evaluate("options => axe.run(options)", options)
    return [
        f"{violation['impact']}: {violation['help']}: {json.dumps([node['html'] for node in violation['nodes'][:5]])}"
        for violation in result["violations"]
    ]
