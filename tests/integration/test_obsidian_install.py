"""`elbowroom obsidian`: what stands in a vault afterwards, what stays as it was, and what a person is told."""

import asyncio
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flit_core.buildapi import build_sdist, build_wheel
from hanging_folders import hanging
from serving import serve, settings_for

from elbowroom.cli import main
from elbowroom.connect.json_text import with_item
from elbowroom.connect.obsidian import enabling, vaults
from elbowroom.connect.obsidian import plugin as plugin_files
from elbowroom.connect.obsidian.plugin import FILES, PluginFolder, packaged, version_of
from elbowroom.settings.files import write_new

VERSION = version_of(packaged()["manifest.json"])
ROOT = Path(__file__).parents[2]
NOT_RUNNING = "Start it first. elbowroom obsidian pair shows a code later."
OBSIDIAN = {"Origin": "app://obsidian.md"}
OTHERS = '[\n  "dataview",\n  "calendar"\n]'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home folder with an Obsidian that knows one vault, whose path has a space and an umlaut."""
    home = tmp_path / "home"
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("APPDATA", str(home / "AppData"))
    monkeypatch.setenv("ELBOWROOM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ELBOWROOM_CONFIG", str(home / "settings.toml"))
    for name in ("XDG_CONFIG_HOME", "ELBOWROOM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    lists = {"win32": "AppData/obsidian", "darwin": "Library/Application Support/obsidian"}
    folder = home / lists.get(sys.platform, ".config/obsidian")
    folder.mkdir(parents=True)
    (vault_in(home) / ".obsidian").mkdir(parents=True)
    rows = {"abc": {"path": str(vault_in(home)), "ts": 1, "open": True}}
    (folder / "obsidian.json").write_text(json.dumps({"vaults": rows}), encoding="utf-8")
    (home / "settings.toml").write_text("# mine\n", encoding="utf-8")
    return home


def vault_in(home: Path) -> Path:
    """Return the vault's folder."""
    return home / "Meine Notizen \u00e4"


@pytest.fixture
def config(home: Path) -> Path:
    """Return the vault's folder of settings, with plugins of others that are switched on."""
    config = vault_in(home) / ".obsidian"
    (config / "community-plugins.json").write_bytes(OTHERS.encode())
    return config


@pytest.fixture
def plugin(config: Path) -> Path:
    """Return the folder into which the plugin comes."""
    return config / "plugins" / "elbowroom"


def obsidian(action: str, *arguments: str) -> int:
    """Run the command where no elbowroom listens."""
    ports = [] if "--address" in arguments else ["--port", "1"]
    return main(["obsidian", action, *ports, *arguments])


def in_folder(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def with_version(plugin: Path, version: str) -> None:
    """Put a plugin of this version there."""
    plugin.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (plugin / name).write_text("// The plugin of elbowroom, an old one", encoding="utf-8")
    (plugin / "manifest.json").write_text(json.dumps({"id": "elbowroom", "version": version}), encoding="utf-8")


def test_install(plugin: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The three files and the address are there, the list of plugins is as it was, and the next steps are told."""
    assert obsidian("install") == 0
    assert in_folder(plugin) == {**packaged(), "data.json": b'{\n  "address": "http://127.0.0.1:1"\n}'}
    assert (config / "community-plugins.json").read_text(encoding="utf-8") == OTHERS
    told = capsys.readouterr().out
    for name in FILES:
        assert f"+ {Path('.obsidian', 'plugins', 'elbowroom', name)}\n" in told
    assert f"Elbowroom {VERSION} is installed." in told
    assert "leave Restricted mode by Turn on community plugins" in told
    assert "server.host = 127.0.0.1" in told
    assert NOT_RUNNING in told


def test_enable_and_remove(home: Path, plugin: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list gets the plugin in its own form and loses it again; the plugin's settings go only with `--all`."""
    before = in_folder(home)
    assert obsidian("install", "--enable") == 0
    assert json.loads((config / "community-plugins.json").read_bytes()) == ["dataview", "calendar", "elbowroom"]
    assert "Reload app without saving" in capsys.readouterr().out
    assert obsidian("list") == 0
    assert f"  {VERSION}, up to date, switched on\n" in capsys.readouterr().out
    assert obsidian("remove") == 0
    assert in_folder(plugin).keys() == {"data.json"}
    assert "Its own settings stay in" in capsys.readouterr().out
    assert obsidian("remove", "--all") == 0
    assert in_folder(home) == before
    assert not plugin.exists()
    assert obsidian("remove") == 0
    assert "The plugin is not installed there." in capsys.readouterr().out


@pytest.fixture
def hung(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let Obsidian know a second vault, which is open and on a share that is gone."""
    monkeypatch.setattr(vaults, "LOOK_SECONDS", 0.2)
    [file] = home.rglob("obsidian.json")
    rows = json.loads(file.read_bytes())["vaults"] | {"def": {"path": str(home / "Share"), "ts": 2, "open": True}}
    file.write_text(json.dumps({"vaults": rows}), encoding="utf-8")
    return home / "Share"


@pytest.mark.slow
@pytest.mark.parametrize("is_agents", [False, True])
def test_a_vault_that_hangs(
    home: Path, hung: Path, plugin: Path, is_agents: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told by its name and left alone; the plugin comes into, up to date in and out of the other one."""
    if is_agents:
        (home / "settings.toml").write_text(f"[vault]\npath = '{hung}'\n", encoding="utf-8")
    with hanging(hung) as looked:
        assert obsidian("list") == 0
        assert f"{hung} does not answer" in capsys.readouterr().out
        for action in ("install", "update", "remove"):
            assert obsidian(action) == 0
        assert obsidian("install", vault_in(home).name) == 0
        assert in_folder(plugin).keys() == {*FILES, "data.json"}
        assert obsidian("install", "Share") == 1
        assert f"{hung} does not answer" in capsys.readouterr().err
        assert obsidian("install", str(hung)) == 1
    assert looked == {"elsewhere"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_pipe_in_the_place_of_the_plugin(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing waits for it: what stands there is told."""
    plugin.mkdir(parents=True)
    os.mkfifo(plugin / "manifest.json")
    assert obsidian("install") == 1
    assert "manifest.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["install", "update", "remove"])
def test_dry_run(home: Path, plugin: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows each change, and makes none."""
    with_version(plugin, "0.0.1")
    (plugin / "data.json").write_text("{}", encoding="utf-8")
    before = in_folder(home)
    wide = ["--agents-vault"] if action != "update" else []
    assert obsidian(action, "--dry-run", *wide) == 0
    assert in_folder(home) == before
    told = capsys.readouterr().out
    assert f"{'-' if action == 'remove' else '~'} {Path('.obsidian', 'plugins', 'elbowroom', 'main.js')}\n" in told
    assert told.endswith("Nothing was changed: this is what would be.\n")


def test_the_plugins_own_settings_stay(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in data.json is never written over; another address in it is told."""
    with_version(plugin, "0.0.1")
    own = b'{"address": "http://nas:2345/", "secret": "mine"}'
    (plugin / "data.json").write_bytes(own)
    assert obsidian("install") == 0
    assert in_folder(plugin) == {**packaged(), "data.json": own}
    told = capsys.readouterr().out
    assert f"Elbowroom: from 0.0.1 to {VERSION}." in told
    assert "The plugin's own settings say http://nas:2345/; that is kept." in told


def test_a_newer_version_stays(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is replaced only with `--force`."""
    with_version(plugin, "999.0.0")
    before = in_folder(plugin)
    assert obsidian("install") == obsidian("update") == 1
    assert in_folder(plugin) == before
    assert "has version 999.0.0, which is newer than" in capsys.readouterr().err
    assert obsidian("update", "--force") == 0
    assert in_folder(plugin) == packaged()
    assert f"Elbowroom: from 999.0.0 to {VERSION}." in capsys.readouterr().out


@pytest.mark.parametrize("manifest", [b"", b"{", b"[1]", b'{"version": 5}', b'{"version": "\\u001b[2J"}', b"\xff"])
def test_a_broken_plugin_is_replaced(plugin: Path, manifest: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """A manifest that tells no version keeps nobody from the new one."""
    with_version(plugin, "0.0.1")
    (plugin / "manifest.json").write_bytes(manifest)
    assert obsidian("update") == 0
    assert f"from an unknown version to {VERSION}" in capsys.readouterr().out
    assert in_folder(plugin) == packaged()


def test_another_plugin_of_the_same_id_stays(plugin: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody else's plugin is left; with `--force` its whole folder is kept beside `plugins`, each time anew."""
    manifest = json.dumps({"id": "elbowroom", "version": "0.0.1", "author": "Somebody"})
    others = {
        "main.js": b"// theirs",
        "manifest.json": manifest.encode(),
        "data.json": b'{"address": "x"}',
        "more.txt": b"1",
    }
    for kept in ("elbowroom-kept", "elbowroom-kept-2"):
        shutil.rmtree(plugin, ignore_errors=True)
        plugin.mkdir(parents=True)
        for name, content in others.items():
            (plugin / name).write_bytes(content)
        assert obsidian("install") == obsidian("update") == 1
        assert in_folder(plugin) == others
        assert "which is not elbowroom's" in capsys.readouterr().err
        assert obsidian("install", "--force", "--dry-run") == 0
        assert in_folder(plugin) == others
        assert obsidian("install", "--force") == 0
        assert in_folder(config / kept) == others
        assert in_folder(plugin) == {**packaged(), "data.json": b'{\n  "address": "http://127.0.0.1:1"\n}'}
    assert obsidian("install") == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_root_leaves_the_vault_to_its_owner(home: Path, config: Path) -> None:
    """What root installs belongs to whom the vault belongs to, so that Obsidian may change and delete it."""
    for path in (home, *home.rglob("*")):
        os.chown(path, 4711, 4712)
    (config / "community-plugins.json").unlink()
    assert obsidian("install", "--enable") == 0
    made = [config / "plugins", config / "community-plugins.json", *(config / "plugins").rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(4711, 4712)}
    assert len(made) == 7


def test_update_goes_to_every_vault(home: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each vault that has the plugin gets it, whatever happens in another one; a vault without it gets nothing."""
    rows = {"abc": {"path": str(vault_in(home))}}
    for number, name in enumerate(("Newer", "Older", "Without")):
        (home / name / ".obsidian").mkdir(parents=True)
        rows[name] = {"path": str(home / name)}
        if name != "Without":
            with_version(home / name / ".obsidian" / "plugins" / "elbowroom", ("999.0.0", "0.0.1")[number])
    list_file = next(home.rglob("obsidian.json"))
    list_file.write_text(json.dumps({"vaults": rows}), encoding="utf-8")
    with_version(plugin, VERSION)
    assert obsidian("update") == 1
    told = capsys.readouterr()
    assert in_folder(plugin) == in_folder(home / "Older" / ".obsidian" / "plugins" / "elbowroom") == packaged()
    assert f"from 0.0.1 to {VERSION}" in told.out
    assert f"elbowroom: Newer ({home / 'Newer'}): " in told.err
    assert not (home / "Without" / ".obsidian" / "plugins").exists()
    assert obsidian("update", "Without") == 1
    assert "The plugin is not installed there" in capsys.readouterr().err


@pytest.mark.parametrize("linked", ["folder", "file"])
def test_a_link_is_left(tmp_path: Path, plugin: Path, config: Path, linked: str) -> None:
    """Who develops the plugin has a link there: it stays, and nothing is written to where it leads."""
    elsewhere = tmp_path / "developed"
    with_version(elsewhere, "0.0.1")
    before = in_folder(elsewhere)
    plugin.parent.mkdir()
    try:
        if linked == "folder":
            plugin.symlink_to(elsewhere, target_is_directory=True)
        else:
            plugin.mkdir()
            (plugin / "main.js").symlink_to(elsewhere / "main.js")
    except OSError:
        pytest.skip("links need rights on Windows")
    assert obsidian("install", "--enable") == obsidian("update") == 0
    assert json.loads((config / "community-plugins.json").read_bytes())[-1] == "elbowroom"
    assert obsidian("remove", "--all") == 0
    assert (config / "community-plugins.json").read_text(encoding="utf-8") == OTHERS
    assert in_folder(elsewhere) == before
    assert (plugin if linked == "folder" else plugin / "main.js").is_symlink()


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'["dataview",', b"\xff", b"null"])
def test_a_broken_list_of_plugins_is_left(
    plugin: Path, config: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files are installed and removed all the same, and a sentence says why the list is as it was."""
    (config / "community-plugins.json").write_bytes(content)
    assert obsidian("install", "--enable") == 0
    assert in_folder(plugin).keys() >= set(FILES)
    assert "community-plugins.json is left as it is, since it is no list in JSON" in capsys.readouterr().out
    assert obsidian("list") == obsidian("remove", "--all") == 0
    assert not plugin.exists()
    assert (config / "community-plugins.json").read_bytes() == content


def test_obsidian_writes_meanwhile(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Obsidian adds to the list while it is changed is kept; one that changes without end is left."""
    file = config / "community-plugins.json"
    written = iter(['["dataview", "new"]', '["new"]'])

    def slow(text: str, item: str) -> str:
        file.write_text(next(written, text), encoding="utf-8")
        return with_item(text, item)

    monkeypatch.setattr(enabling, "with_item", slow)
    assert obsidian("install", "--enable") == 0
    assert json.loads(file.read_bytes()) == ["new", "elbowroom"]
    endless: Iterator[str] = (f'["{number}"]' for number in range(1000))
    written = endless
    file.write_text("[]", encoding="utf-8")
    assert obsidian("install", "--enable") == 1
    assert not json.loads(file.read_bytes())[0].startswith("elbowroom")


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "Make room on the disk of"), (errno.EROFS, "Let the user that runs elbowroom write in the folder")],
)
def test_a_write_that_fails_leaves_the_old_version(
    plugin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, said: str
) -> None:
    """All files are replaced or none, and nothing is left beside them; a new folder goes again."""

    def failing(path: Path, content: bytes) -> None:
        if "styles.css" in path.name:
            raise OSError(number, os.strerror(number))
        write_new(path, content)

    monkeypatch.setattr(plugin_files, "write_new", failing)
    assert obsidian("install") == 1
    assert not plugin.exists()
    with_version(plugin, "0.0.1")
    before = in_folder(plugin)
    assert obsidian("install") == 1
    assert in_folder(plugin) == before
    assert said in capsys.readouterr().err


def test_several_at_once(plugin: Path, config: Path) -> None:
    """The command and the page may install at the same time; what a killed attempt has left goes with the plugin."""
    new = packaged()
    changes = [PluginFolder(config).installing(new, force=False)[0] for _ in range(16)]
    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(lambda change: change.make(), changes)] == [None] * 16
    assert in_folder(plugin) == new
    (plugin / ".main.js.0123abcd.new").write_text("half", encoding="utf-8")
    assert obsidian("remove", "--all") == 0
    assert not plugin.exists()


def test_the_agents_vault(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is set on demand, in a file that stays a person's, never in place of another one without `--force`."""
    settings, folder = home / "settings.toml", vault_in(home)
    assert obsidian("install") == 0
    assert settings.read_text(encoding="utf-8") == "# mine\n"
    assert "Agents work in no vault yet" in capsys.readouterr().out
    assert obsidian("install", "--agents-vault") == 0
    assert tomllib.loads(settings.read_text(encoding="utf-8")) == {"vault": {"path": str(folder)}}
    assert settings.read_text(encoding="utf-8").startswith("# mine\n")
    assert "No agent has the tools for it yet" in capsys.readouterr().out
    assert obsidian("remove") == 0
    assert "Agents still work in this vault" in capsys.readouterr().out
    assert obsidian("remove", "--agents-vault") == 0
    assert "path" not in tomllib.loads(settings.read_text(encoding="utf-8")).get("vault", {})
    other = f"[vault]\npath = {json.dumps(str(home / 'Other'))}\n"
    settings.write_text(other, encoding="utf-8")
    assert obsidian("install", "--agents-vault") == 1
    assert settings.read_text(encoding="utf-8") == other
    assert "install --agents-vault --force replaces it" in capsys.readouterr().err
    assert obsidian("install", "--agents-vault", "--force") == 0
    assert tomllib.loads(settings.read_text(encoding="utf-8"))["vault"]["path"] == str(folder)


def test_what_a_phone_needs(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where elbowroom listens to others, nothing is missing but names of its own."""
    monkeypatch.setenv("ELBOWROOM_TOKEN", "t")
    for more, said in (("", True), ('allowed_hosts = ["nas.local"]\n', False)):
        (home / "settings.toml").write_text(f'[server]\nhost = "0.0.0.0"\n{more}', encoding="utf-8")
        assert obsidian("install") == 0
        assert ("add it to server.allowed_hosts" in capsys.readouterr().out) is said


async def test_pairing(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A running elbowroom gives a code at the end of an installation, and another one later; each lets a plugin in."""
    monkeypatch.setenv("ELBOWROOM_TOKEN", "t\u00f6ken")
    settings = settings_for("http://127.0.0.1:9")
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TOKEN": "t\u00f6ken"}) as served:
        for action in ("install", "pair"):
            assert await asyncio.to_thread(obsidian, action, "--address", f"{served.url}/v1/") == 0
            code = re.findall(r"^Pairing code: (\S+)\nType it in Obsidian", capsys.readouterr().out, re.MULTILINE)
            claim = {"code": code[0], "name": "Obsidian"}
            async with served.http.post(f"{served.url}/api/pairing/claim", json=claim, headers=OBSIDIAN) as response:
                assert response.status == 201
        monkeypatch.setenv("ELBOWROOM_TOKEN", "other")
        assert await asyncio.to_thread(obsidian, "pair", "--address", served.url) == 1
        assert "asks for its token" in capsys.readouterr().err


def test_pairing_where_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The person reads what to start."""
    assert obsidian("pair") == 1
    assert "Start it first." in capsys.readouterr().err
    assert obsidian("pair", "--address", "nas:1") == 1
    assert "--address has to be where elbowroom is" in capsys.readouterr().err


@pytest.mark.slow
def test_it_is_in_the_package(home: Path, plugin: Path, tmp_path: Path) -> None:
    """Who installs the wheel can install the plugin, and the source distribution has it as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        wheel = tmp_path / build_wheel(str(tmp_path))
        source = tmp_path / build_sdist(str(tmp_path))
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/elbowroom/connect/plugin/{name}" for name in FILES} <= names
    zipfile.ZipFile(wheel).extractall(tmp_path / "unpacked")
    script = "import sys, elbowroom.cli as cli; print(cli.__file__); sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "obsidian", "install", "--port", "1"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")}
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.startswith(str(tmp_path / "unpacked")), done.stderr
    assert done.returncode == 0
    assert {name: (plugin / name).read_bytes() for name in FILES} == packaged()
