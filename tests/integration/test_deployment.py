"""The files of `deploy/` are valid and agree with each other; behind them no restart of a server fails an answer."""

import importlib
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from balancer import balanced
from real_balancers import DEPLOY, KINDS, NAMED, Kind, command, file_for, in_front
from rolling import restarted_under_load, studio_for_clients
from server_processes import server_processes

from elbowroom.server.app import longest_stop
from elbowroom.settings.load import load_settings
from elbowroom.settings.model import ServerSettings
from elbowroom.store.place import ServerPlace, place_of

DOCUMENT = (DEPLOY.parent / "docs" / "scale.md").read_text(encoding="utf-8")
UNIT = "elbowroom@.service"
SERVERS = {"elbowroom-1", "elbowroom-2", "elbowroom-3"}


def compose() -> dict[str, Any]:
    """Return what compose.yaml says."""
    yaml: Any = importlib.import_module("yaml")
    said: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return said


def server_settings() -> dict[str, Any]:
    """Return the section `[server]` of the settings for all servers."""
    section: dict[str, Any] = tomllib.loads((DEPLOY / "settings.toml").read_text(encoding="utf-8"))["server"]
    return section


def stop_seconds() -> float:
    """Return how many seconds a server with the settings may take to stop."""
    return longest_stop(ServerSettings(**server_settings()))


def test_compose_runs_what_the_document_names() -> None:
    """A database that keeps its data, three servers with one settings file, and a load balancer with the only port."""
    said = compose()
    services = said["services"]
    assert services.keys() == SERVERS | {"database", "balancer"}
    assert all(f"`{name}`" in DOCUMENT for name in services)
    assert services["database"]["volumes"] == ["database:/var/lib/postgresql/data"]
    assert "database" in said["volumes"]
    assert [name for name, service in services.items() if "ports" in service] == ["balancer"]
    mounted = [volume for service in services.values() for volume in service["volumes"] if volume.startswith("./")]
    assert all((DEPLOY / volume.split(":")[0]).is_file() for volume in mounted)
    for name in SERVERS:
        assert services[name]["depends_on"] == {"database": {"condition": "service_healthy"}}
        assert int(services[name]["stop_grace_period"].removesuffix("m")) * 60 > stop_seconds()
        assert set(services[name]["secrets"]) == said["secrets"].keys()


def test_the_settings_are_valid(tmp_path: Path) -> None:
    """Every key is known, other machines may connect, and the store is on the database of compose.yaml."""
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    file, environ = tmp_path / "settings.toml", {"ELBOWROOM_DATA_DIR": str(tmp_path)}
    text = (DEPLOY / "settings.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("/run/secrets/token", str(tmp_path / "token")), encoding="utf-8")
    loaded = load_settings(file, environ, {}, must_exist=True)
    assert loaded.warnings == ()
    place = place_of(loaded.settings.store.url, environ)
    assert isinstance(place, ServerPlace)
    assert place.address == "postgresql://elbowroom@database/elbowroom"
    assert str(place.secret) == "file:/run/secrets/database"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_template(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say about an instance; it waits for as long as a stop may take."""
    text = (DEPLOY / UNIT).read_text(encoding="utf-8")
    found = re.search(r"^TimeoutStopSec=(\d+)min$", text, re.MULTILINE)
    assert found
    assert int(found[1]) * 60 > stop_seconds()
    unit = tmp_path / "elbowroom@2351.service"
    verify = ["systemd-analyze", "--user", "--man=no", "verify", str(unit)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}

    def said(text: str) -> str:
        unit.write_text(text.replace("/opt/elbowroom/.venv/bin/elbowroom", "/bin/true"), encoding="utf-8")
        done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    assert said(text) == "0 "
    assert "KillMood" in said(text.replace("KillMode=", "KillMood="))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.program for kind in KINDS])
def test_a_load_balancer_accepts_its_file(kind: Kind, tmp_path: Path) -> None:
    """It names the servers of compose.yaml, and the program has no objection."""
    text = (DEPLOY / kind.file).read_text(encoding="utf-8")
    assert {f"elbowroom-{number}" for number in NAMED.findall(text)} == SERVERS
    file = file_for(kind, tmp_path, [2351, 2352, 2353], 8080)
    done = subprocess.run(command(kind, kind.check, file), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_going_by_readiness_is_enough(tmp_path: Path) -> None:
    """A balancer that goes by `/ready`, and repeats nothing, needs no more than a notice of a second."""
    notice = "stop_notice_seconds = 1\ndrain_seconds = 60"
    async with studio_for_clients() as studio:
        async with server_processes(tmp_path, 2, {"studio": studio.base_url}, server=notice) as (servers, _):
            async with balanced(servers) as url:
                await restarted_under_load(url, servers)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.program for kind in KINDS])
async def test_no_answer_fails_in_a_rolling_restart(kind: Kind, tmp_path: Path) -> None:
    """With the files as they are, each server is stopped and started while clients ask, and no answer is missing."""
    given = {name: server_settings()[name] for name in ("stop_notice_seconds", "drain_seconds", "allowed_hosts")}
    server = "\n".join(f"{name} = {json.dumps(value)}" for name, value in given.items())
    async with studio_for_clients() as studio:
        async with server_processes(tmp_path, 2, {"studio": studio.base_url}, server=server) as (servers, _):
            async with in_front(kind, tmp_path, [each.port for each in servers]) as url:
                await restarted_under_load(url, servers)
