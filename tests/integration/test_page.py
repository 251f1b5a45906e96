"""The page at `/` as a browser gets it: its files, its headers, and that it needs nothing from elsewhere."""

import json
import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from flit_core.buildapi import build_wheel
from serving import Served, serve, settings_for

from elbowroom.errors import own_command
from elbowroom.server.app import create_app
from elbowroom.server.page import CLIENTS, FILES, packed, page_files
from elbowroom.settings.live import LiveSettings

ROOT = Path(__file__).parents[2]
TOKEN = 'token = "env:ELBOWROOM_TEST_TOKEN"'
REFERENCE = re.compile(r"""["']((?:/page/|\./)[\w.-]+)["']""")
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|DOMParser|document\.write|\beval\(|new Function"
ELSEWHERE = re.compile(rf"(?:https?:)?//[a-z0-9-]+\.|url\(|@import|{MARKUP}")
NEVER_ASKED = re.compile(r"http://www\.w3\.org/2000/svg|//host\.docker\.internal")
"""Names that are no requests: the name space of the icon, and an address to paste into a program in Docker."""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom with a token, in front of nothing."""
    settings = settings_for("http://127.0.0.1:9", server=TOKEN)
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": "right"}) as served:
        yield served


async def test_page_comes_without_a_token_and_its_data_does_not(served: Served) -> None:
    """Who has no token yet has to see the page that asks for it, and nothing behind it."""
    async with served.http.get(served.url + "/") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "<title>elbowroom</title>" in await response.text()
    async with served.http.get(served.url + "/api/settings") as response:
        assert response.status == 401


async def test_every_part_that_is_named_is_there(served: Served) -> None:
    """Whatever the page and its scripts refer to is served, each as what it is, and no file is left over."""
    found, waiting = set[str](), ["/"]
    while waiting:
        path = waiting.pop()
        async with served.http.get(served.url + path) as response:
            assert response.status == 200, path
            text = await response.text()
            kind = response.content_type
        found.add(path)
        if kind != "image/svg+xml":
            named = {urljoin(path, reference) for reference in REFERENCE.findall(text)}
            waiting += named - found - {*waiting}
        expected = {
            "js": "text/javascript",
            "css": "text/css",
            "svg": "image/svg+xml",
            "/": "text/html",
            "json": "application/json",
        }
        assert kind == expected[path.rpartition(".")[2]]
    assert {f"/page/{name}" for name in page_files()} - found == {"/page/index.html"}


async def test_the_command_for_open_webui(served: Served) -> None:
    """The Connect view gets it in the words by which this server was started, and shows that very text."""
    async with served.http.get(f"{served.url}/page/clients.json") as response:
        told = (await response.json())["webui_command"]
    assert told == f"{own_command()} connect open-webui --url http://127.0.0.1:8080 --key sk-..."
    assert b"copyable(more.webui_command" in page_files()["connect.js"].body


async def test_commands_name_the_port_that_a_flag_has_set(tmp_path: Path) -> None:
    """The settings do not tell it, so a command that is pasted into a terminal would ask another server, or none."""
    live = LiveSettings(tmp_path / "settings.toml", {}, {("server", "host"): None, ("server", "port"): 2399})
    app = create_app(live, environ={"ELBOWROOM_DATA_DIR": str(tmp_path)})
    told = json.loads(app[FILES][CLIENTS].body)
    assert told["options"] == " --port 2399"
    assert told["webui_command"].endswith(" --key sk-... --port 2399")
    assert b'--write --model "$model"${options}' in page_files()["connect.js"].body


@pytest.mark.threat("scripts in names", "the policy lets nothing else run")
@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/style.css"])
async def test_headers_let_nothing_else_in(served: Served, path: str) -> None:
    """A browser runs and asks nothing but this server's own files, shows it in no frame, and tells nobody about it."""
    async with served.http.get(served.url + path) as response:
        headers = response.headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect", "img")} == {"'self'"}
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert headers["Cache-Control"] == "no-cache"


async def test_known_file_is_not_sent_again(served: Served) -> None:
    """A browser asks each time, and gets a file again only when it has changed."""
    async with served.http.get(served.url + "/page/app.js") as response:
        tag = response.headers["ETag"]
    for known, status in ((tag, 304), (f'"other", {tag}', 304), ("*", 304), ('"other"', 200)):
        async with served.http.get(served.url + "/page/app.js", headers={"If-None-Match": known}) as response:
            assert (response.status, response.headers["ETag"]) == (status, tag)
            assert bool(await response.read()) == (status == 200)


@pytest.mark.parametrize("path", ["/page/", "/page/none.js", "/page/..%2fapp.py", "/page/__init__.py", "/page/a/b.js"])
async def test_nothing_but_the_pages_files_is_served(served: Served, path: str) -> None:
    """What is none of the page's files is not found, wherever the path leads."""
    async with served.http.get(served.url + path) as response:
        assert response.status == 404
        assert (await response.json())["error"]["message"]


async def test_page_of_a_foreign_host_is_refused(served: Served) -> None:
    """A name that somebody has pointed to this machine does not get the page, and so no way to the API."""
    async with served.http.get(served.url + "/", headers={"Host": "evil.example"}) as response:
        assert response.status == 403


async def test_link_from_another_site_opens_the_page(served: Served) -> None:
    """The page can be linked to from anywhere, for it says nothing about anybody."""
    async with served.http.get(served.url + "/", headers={"Sec-Fetch-Site": "cross-site"}) as response:
        assert response.status == 200


async def test_page_under_an_allowed_name_may_call(tmp_path: Path) -> None:
    """Who opens the page under a name of `allowed_hosts` can save there, without listing its origin as well."""
    settings = settings_for("http://127.0.0.1:9", server='allowed_hosts = ["nas.local"]')
    async with serve(tmp_path, settings) as served:
        own = {"Host": f"nas.local:{served.port}", "Origin": f"http://nas.local:{served.port}"}
        for headers, status in ((own, 200), ({**own, "Origin": "http://nas.local:1"}, 403)):
            change = {"compaction": {"retain_last_turns": 2}}
            async with served.http.patch(served.url + "/api/settings", json=change, headers=headers) as response:
                assert response.status == status


def test_page_is_small() -> None:
    """All of it is under 161.5 kB, uncompressed, and the library for Markdown under 45."""
    sizes = {name: len(file.body) for name, file in page_files().items()}
    foreign = sizes.pop("marked.min.js")
    assert 50_000 < sum(sizes.values()) < 161_500
    assert foreign < 45_000


def test_library_is_named_with_its_licence_and_only_cuts_text() -> None:
    """It makes no markup, asks nobody, and its licence is among the notices."""
    text = page_files()["marked.min.js"].body.decode()
    assert not re.search(rf"{MARKUP}|fetch\(|XMLHttpRequest|WebSocket|\bimport\b", text)
    assert "marked.min.js: marked 16.4.2" in (ROOT / "THIRD_PARTY_NOTICES").read_text(encoding="utf-8")


def test_page_refers_to_no_other_host_and_makes_no_markup_of_text() -> None:
    """No file names another host, or writes text as HTML: titles and answers of models are hostile."""
    for name, file in page_files().items():
        if name == "marked.min.js":  # which is looked at above
            continue
        text = NEVER_ASKED.sub("", file.body.decode())
        assert ELSEWHERE.findall(text) == [], name
        assert not re.search(r"<[^>]+\s(?:style|on[a-z]+)=", text), name  # the policy forbids both


@pytest.mark.slow
def test_page_is_in_the_wheel(tmp_path: Path) -> None:
    """Who installs the package has the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        wheel = zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path)))
    for name, file in page_files().items():
        assert packed(name, wheel.read(f"elbowroom/server/page/{name}")) == file.body
