"""`docs/settings-api.md` names every route, and every code of a refusal."""

import re
from pathlib import Path

from elbowroom.server.app import create_app
from elbowroom.settings import change as agent_changes
from elbowroom.settings import change as changing
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.merge import restart_needed

DOCUMENT = (Path(__file__).parents[3] / "docs" / "settings-api.md").read_text(encoding="utf-8")
TABLES = ("settings", "agents", "providers", "tools", "doctor", "pairing", "users", "acts")


def test_it_has_every_route(tmp_path: Path) -> None:
    """The table of requests is that of the server."""
    app = create_app(LiveSettings(tmp_path / "settings.toml", {}, {}), environ={"ELBOWROOM_DATA_DIR": str(tmp_path)})
    routes = {
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.resource and route.method != "HEAD" and route.resource.canonical.startswith("/api/")
    }
    own = {route for route in routes if route.split("/")[2] in TABLES}
    assert set(re.findall(r"^\| `([A-Z]+ /api/[^`]+)` \|", DOCUMENT, re.MULTILINE)) == own


def test_it_has_every_code() -> None:
    """Whatever code a refusal has can be looked up, but for those that say it themselves."""
    sources = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in (agent_changes, changing))
    codes = set(re.findall(r'code="(\w+)"', sources)) - {"agent_not_found", "agent_exists"}
    assert len(codes) >= 6
    assert sorted(code for code in codes if f"`{code}`" not in DOCUMENT) == []


def test_what_needs_a_restart(tmp_path: Path) -> None:
    """Nothing waits for a restart as long as nothing has changed."""
    settings = LiveSettings(tmp_path / "settings.toml", {}, {}).current().settings
    assert restart_needed(settings, settings) == []
    changed = settings.model_copy(update={"store": settings.store.model_copy(update={"retention_days": 1})})
    assert restart_needed(settings, changed) == ["store.retention_days"]
