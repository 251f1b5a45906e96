"""What else knows of several machines: settings, LM Studio's routes, the doctor."""

from pathlib import Path
from typing import Any

import chromium
import pytest
from chatting import MODEL
from chromium import opened
from examined import examined
from playwright.async_api import Browser, expect
from serving import Served, serve
from several_machines import chats, machines, say

from elbowroom.agents.admission import Priority
from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.server.state import SHARED

browser = chromium.browser

JOINED = """
[server]
port = 0

[[providers]]
id = "desk"
kind = "lmstudio"
base_url = "{first}"

[[providers]]
id = "cellar"
kind = "lmstudio"
base_url = "{second}"
machine_of = "desk"
"""


async def post(served: Served, route: str, **body: Any) -> tuple[int, Any]:
    """Return status and body of a POST to one of LM Studio's routes."""
    async with served.http.post(f"{served.url}/api/v1/models/{route}", json=body) as response:
        return response.status, await response.json()


def loaded(studio: SimulatedLMStudio) -> list[str]:
    """Return the ids of the loaded instances."""
    return [instance.id for instance in studio.residency.instances.values() if instance.ready]


async def test_a_provider_can_be_a_machine_of_another(tmp_path: Path) -> None:
    """Its models are listed once, under the other's name; chats go to both, and to one where the other is away."""
    model = SimulatedModel(MODEL, loaded_context_length=8192)
    async with SimulatedLMStudio([model]) as first, SimulatedLMStudio([model]) as second:
        async with serve(tmp_path, JOINED.format(first=first.base_url, second=second.base_url)) as served:
            async with served.http.get(f"{served.url}/v1/models") as response:
                assert [row["id"] for row in (await response.json())["data"]] == [f"desk/{MODEL}"]
            for _ in range(2):
                await say(served, [], "Hello")
            assert chats([first, second]) == [1, 1]
            await first.stop()
            await say(served, [], "Hello")
            assert chats([first, second]) == [1, 2]
            async with served.http.get(f"{served.url}/api/providers") as response:
                (row,) = (await response.json())["data"]
            assert [one["id"] for one in row["machines"]][1] == "cellar"


async def test_models_are_loaded_where_they_are_not(tmp_path: Path) -> None:
    """Without a machine, loading and unloading mean all that it concerns; with one, that one alone."""
    async with machines(tmp_path, 8192, 8192) as (served, (first, second)):
        first.unload(MODEL)
        status, told = await post(served, "load", model=MODEL, context_length=4096)
        assert status == 200
        assert [one["instance_id"] for one in told["machines"]] == [MODEL]
        assert [loaded(first), loaded(second)] == [[MODEL], [MODEL]]
        async with served.http.get(f"{served.url}/api/v1/models") as response:
            (row,) = (await response.json())["models"]
        assert [one["config"]["context_length"] for one in row["loaded_instances"]] == [4096, 8192]
        status, _ = await post(served, "unload", instance_id=MODEL, machine=second.base_url.removeprefix("http://"))
        assert status == 200
        assert [loaded(first), loaded(second)] == [[MODEL], []]
        await post(served, "load", model=f"desk/{MODEL}")
        status, told = await post(served, "unload", instance_id=MODEL)
        assert len(told["machines"]) == 2
        assert [loaded(first), loaded(second)] == [[], []]
        status, told = await post(served, "unload", instance_id=MODEL, machine="far")
        assert status == 400
        assert told["error"]["message"].startswith("machine has to be one of: desk@127.0.0.1:")


async def test_a_download_is_followed_on_its_machine(tmp_path: Path) -> None:
    """It begins on the first machine that answers, and is asked for there."""
    offered = [SimulatedModel("new", size_bytes=1000)]
    async with machines(tmp_path, 8192, 8192, offered=offered) as (served, (first, second)):
        _, told = await post(served, "download", model="new")
        async with served.http.get(f"{served.url}/api/v1/models/download/status/{told['job_id']}") as response:
            assert response.status == 200
        assert [len(studio.downloads.jobs) for studio in (first, second)] == [1, 0]


async def test_the_doctor_looks_at_each_address(tmp_path: Path) -> None:
    """A machine that is away is a finding of its own, with its address; the others are all right."""
    model = SimulatedModel("tiny", loaded_context_length=16_384)
    async with SimulatedLMStudio([model]) as first, SimulatedLMStudio([model]) as second:
        await second.stop()
        addresses = f'base_urls = ["{first.base_url}", "{second.base_url}"]'
        settings = f'[server]\nport = 0\n[[providers]]\nid = "desk"\nkind = "lmstudio"\n{addresses}\n'
        findings = await examined(tmp_path, settings)
    by_check = {found.check: found for found in findings}
    assert by_check[f"desk@127.0.0.1:{first.port}"].severity == "ok"
    away = by_check[f"desk@127.0.0.1:{second.port}"]
    assert away.severity == "fail"
    assert second.base_url in away.where


@pytest.mark.long
@pytest.mark.parametrize("size", [chromium.DESKTOP, chromium.PHONE], ids=["desktop", "phone"])
async def test_the_page_has_a_line_for_each_machine(tmp_path: Path, browser: Browser, size: tuple[int, int]) -> None:
    """It says where each machine is, how full its windows are, and why one is left alone, on a phone too."""
    async with machines(tmp_path, 16_384, 8192) as (served, (large, small)):
        await small.stop()
        await say(served, [], "Hello")
        large_pool = f"desk@127.0.0.1:{large.port}", MODEL
        admission = served.app[SHARED].admission
        holding = admission.admitted(large_pool, capacity=16_384, tokens=9000, priority=Priority.CHAT, prompt=8000)
        async with holding, opened(browser, f"{served.url}/#/models", size=size) as page:
            rows = page.get_by_role("list", name="Machines of desk").get_by_role("listitem")
            await expect(rows).to_have_count(2)
            await expect(rows.nth(0)).to_contain_text(f"{large.base_url}answers{MODEL}: 9,000 of 16,384 held")
            await expect(rows.nth(1)).to_contain_text(f"left aloneLM Studio does not answer at {small.base_url}.")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
