"""Somebody who uses the page by keyboard alone."""

from dataclasses import dataclass
from typing import Final

from playwright.async_api import Page, expect
from serving import Served

MOST_TABS: Final = 150
NO_POINTER: Final = "addEventListener('pointerdown', () => { window.pointed = true; }, true)"
FOCUSED: Final = """() => {
    const one = document.activeElement;
    const label = one.labels?.[0]?.textContent ?? "";
    return [one.getAttribute("aria-label") ?? "", one.textContent.trim(), label.trim()];
}"""


@dataclass(frozen=True, slots=True)
class Typist:
    """Somebody who has a keyboard and nothing else."""

    page: Page
    served: Served

    async def reach(self, name: str) -> None:
        """Press Tab until what has this name has the focus, whose outline can be seen."""
        for _ in range(MOST_TABS):
            await self.page.keyboard.press("Tab")
            if name in await self.page.evaluate(FOCUSED):
                assert await self.page.evaluate("document.activeElement.matches(':focus-visible')")
                return
        raise AssertionError(f"Tab never leads to {name!r}")

    async def enter(self, name: str, key: str = "Enter") -> None:
        """Reach what has this name, and press a key there."""
        await self.reach(name)
        await self.page.keyboard.press(key)

    async def saved(self) -> None:
        """Wait until a form is saved."""
        await expect(self.page.locator("form.dirty")).to_have_count(0)

    def settings(self) -> str:
        """Return the settings as they are in the file."""
        return self.served.settings.read_text(encoding="utf-8")
