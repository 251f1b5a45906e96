"""Messages on the page are rendered from Markdown, of which nothing becomes markup, a request or a script."""

from pathlib import Path

import chromium
import pytest
from chromium import opened
from page_scene import QWEN
from playwright.async_api import Browser, expect
from serving import serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
TEXT = """# The garden

Beds, **two** of them, `along` the *wall*:

1. peas
2. beans
   - runner beans

| bed | plant |
|---|---|
| 1 | peas |

```python
print("<b>hello</b>")
```

> a quotation

[the almanac](https://example.org/almanac) and [a trap](javascript:document.title='owned')
![a picture](https://example.org/picture.png)
<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>
"""


async def test_markdown_is_rendered_and_harmless(tmp_path: Path, browser: Browser) -> None:
    """Lists, tables, code and links are there; HTML stays text, no image is asked for, and a switch shows the text."""
    async with (
        SimulatedLMStudio([SimulatedModel(QWEN, loaded_context_length=4096)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        studio.enqueue(TEXT)
        await served.chat(f"lmstudio/{QWEN}", "Tell me")
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name="Tell me").click()
            said = page.locator(".message .said.rendered").last
            await expect(said.locator("p > strong").first).to_have_text("The garden")
            await expect(said.locator("ol > li")).to_have_count(2)
            await expect(said.locator("ul > li")).to_have_text(["runner beans"])
            await expect(said.get_by_role("cell")).to_have_text(["1", "peas"])
            await expect(said.locator("pre")).to_have_text('print("<b>hello</b>")')
            await expect(said.locator("blockquote")).to_have_text("a quotation")
            link = said.get_by_role("link")
            await expect(link).to_have_attribute("href", "https://example.org/almanac")
            await expect(link).to_have_attribute("rel", "noopener noreferrer")
            await expect(said.locator("img, script")).to_have_count(0)
            await expect(said).to_contain_text("javascript:document.title='owned'")
            await expect(said).to_contain_text("<script>document.title='owned'</script>")
            assert "owned" not in await page.title()
            await page.get_by_label("As text").check()
            await expect(page.locator(".message .said").last).to_have_text(TEXT)
