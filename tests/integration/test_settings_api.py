"""`/api/settings`: values with their sources, changes that are checked wholly, and what a person is told."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving import Served, serve, settings_for

NOBODY = "http://127.0.0.1:9"
WRITER = '# The first one\n[[agents]]\nid = "writer"\nmodel = "tiny"  # small\n'


async def ask(served: Served, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request and return the status and the parsed answer, None where it has none."""
    given = {} if body is None else {"json": body}
    async with served.http.request(method, served.url + path, headers=headers, **given) as response:
        return response.status, await response.json() if response.status != 204 else None


async def change(served: Served, patch: Mapping[str, Any]) -> tuple[int, Any]:
    """Send a merge patch of the settings."""
    return await ask(served, "PATCH", "/api/settings", patch)


def in_file(served: Served) -> dict[str, Any]:
    """Return what the settings file says."""
    return tomllib.loads(served.settings.read_text(encoding="utf-8"))


async def test_values_come_with_their_sources(tmp_path: Path) -> None:
    """Each value in force is there with its default filled in, and each says where it comes from."""
    environ = {"ELBOWROOM_COMPACTION__RETAIN_LAST_TURNS": "4"}
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER), environ=environ) as served:
        status, answer = await ask(served, "GET", "/api/settings")
    assert status == 200
    assert answer["path"] == str(served.settings)
    assert answer["values"]["compaction"]["retain_last_turns"] == 4
    assert answer["values"]["agents"][0]["max_turns"] == 50
    assert answer["values"]["server"]["token"] == {"set": False, "from": "env:ELBOWROOM_TOKEN"}
    sources = answer["sources"]
    assert sources["server.port"] == sources["agents[0].model"] == "file"
    assert sources["server.host"] == sources["agents[0].max_turns"] == "default"
    assert sources["compaction.retain_last_turns"] == "environment"
    assert answer["schema"]["properties"].keys() == answer["values"].keys()
    assert answer["restart_needed"] == answer["warnings"] == []


async def test_a_change_is_in_the_file_and_in_force(tmp_path: Path) -> None:
    """A change answers with the new values; the file says it, with everything else as it was."""
    before = settings_for(NOBODY, agents=WRITER).strip() + "\n"
    async with serve(tmp_path, before) as served:
        status, answer = await change(served, {"compaction": {"pruning_agent": "writer", "auto": False}})
        assert status == 200
        assert answer["values"]["compaction"]["pruning_agent"] == "writer"
        assert answer["sources"]["compaction.pruning_agent"] == "file"
        text = served.settings.read_text(encoding="utf-8")
        assert text == f'{before}\n[compaction]\npruning_agent = "writer"\nauto = false\n'
        assert served.settings.with_name("settings.toml.bak").read_text(encoding="utf-8") == before
        await change(served, {"compaction": {"pruning_agent": None}})
        assert in_file(served)["compaction"] == {"auto": False}
