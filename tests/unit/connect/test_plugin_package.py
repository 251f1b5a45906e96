"""What is installed into a vault: small, made from its sources, and as Obsidian's guidelines ask."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from obsidian_plugin import PLUGIN, ROOT, SOURCES

MOST_BYTES = 150_000
FILES = ("main.js", "manifest.json", "styles.css")
MODULES = sorted(path.relative_to(SOURCES / "src").as_posix() for path in (SOURCES / "src").rglob("*.js"))
REFUSED = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "XMLHttpRequest",
    "WebSocket",
    "EventSource",
    "sendBeacon",
    "localStorage",
    "window.app",
    "globalThis",
    "process.",
    "Buffer.",
    "detachLeavesOfType",
    "hotkeys:",
)


def manifest() -> dict[str, Any]:
    """Return what the plugin says of itself."""
    told: dict[str, Any] = json.loads((PLUGIN / "manifest.json").read_text(encoding="utf-8"))
    return told


def test_all_of_it_is_small() -> None:
    """Phones download three files, of less than 150 kB together."""
    assert sum((PLUGIN / name).stat().st_size for name in FILES) < MOST_BYTES


def code_of(text: str) -> str:
    """Return the lines of code in a text, without types, descriptions and empty lines."""
    bare = re.sub(r"/\*\*.*?\*/ ?", "", text, flags=re.DOTALL)
    return "\n".join(line for line in bare.splitlines() if line.strip())


@pytest.mark.parametrize("name", MODULES)
def test_what_is_installed_is_what_the_sources_say(name: str) -> None:
    """The code of each module stands in main.js as it is, without its imports and the word export."""
    source = (SOURCES / "src" / name).read_text(encoding="utf-8")
    body = re.sub(r'^import \{[^}]*\} from "[^"]+";\n', "", source, flags=re.MULTILINE)
    body = re.sub(r"^export (?:default )?", "", body, flags=re.MULTILINE)
    installed = code_of((PLUGIN / "main.js").read_text(encoding="utf-8"))
    assert f"\n// {name}\n{code_of(body)}\n" in installed, "run npm run build"


def test_it_has_no_module_but_its_own() -> None:
    """main.js has the modules of the sources and no other, and takes nothing but Obsidian: it runs on phones."""
    code = (PLUGIN / "main.js").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^// ([\w/]+\.js)$", code, flags=re.MULTILINE)) == MODULES
    assert re.findall(r"\brequire\(([^)]*)\)", code) == ['"obsidian"']


def test_the_folder_for_the_community_directory(tmp_path: Path) -> None:
    """A script makes it: all that is asked for, sources that build, no link that leads out, the same bytes."""
    made, script = [], str(ROOT / "scripts" / "plugin_folder")
    for folder in (tmp_path / "one", tmp_path / "two"):
        subprocess.run([sys.executable, script, str(folder)], check=True, capture_output=True)
        made.append({p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert made[0] == made[1]
    assert {"manifest.json", "LICENSE", "README.md", "versions.json", "build.mjs", "package-lock.json"} <= set(made[0])
    assert {name: made[0][name] for name in FILES} == {name: (PLUGIN / name).read_bytes() for name in FILES}
    assert {name for name in made[0] if name.startswith("src/")} == {f"src/{name}" for name in MODULES}
    assert b"(../" not in made[0]["README.md"]
    again = [sys.executable, script, str(tmp_path / "one")]
    assert b"exists already" in subprocess.run(again, check=False, capture_output=True).stderr
    if node := shutil.which("node"):
        subprocess.run([node, "build.mjs", "--check"], cwd=tmp_path / "one", check=True)


def test_the_manifest_follows_the_rules() -> None:
    """The id is a new one, the description a sentence, and all files that name a version agree."""
    told = manifest()
    assert set(told) == {"id", "name", "version", "minAppVersion", "description", "author", "isDesktopOnly"}
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", told["id"])
    assert not any("obsidian" in told[key].lower() or "plugin" in told[key].lower() for key in ("id", "name"))
    assert len(told["description"]) <= 250
    assert told["description"].endswith(".")
    assert told["isDesktopOnly"] is False
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["version"])
    assert json.loads((SOURCES / "package.json").read_text(encoding="utf-8"))["version"] == told["version"]
    versions = json.loads((SOURCES / "versions.json").read_text(encoding="utf-8"))
    assert versions[told["version"]] == told["minAppVersion"]


def test_it_does_nothing_that_a_review_refuses() -> None:
    """No HTML from text, no network but requestUrl and two fetches, nothing of Node, no hotkeys, no view detached."""
    code = (PLUGIN / "main.js").read_text(encoding="utf-8")
    assert [word for word in REFUSED if word in code] == []
    assert len(re.findall(r"\bfetch\(", code)) == 2  # the question, and whether the window may ask at all


def test_addresses_in_it_are_ones_own_computer() -> None:
    """No address of another computer stands in the code: what is asked is the address that the person set."""
    code = (PLUGIN / "main.js").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[\w.:]+\w", code)) == {"http://127.0.0.1:2345"}


def test_styles_take_obsidians_colours_and_touch_nothing_else() -> None:
    """Each rule names a class of the plugin, and each colour is a variable of the theme, light or dark."""
    css = re.sub(r"/\*.*?\*/", "", (PLUGIN / "styles.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    selectors = [part.strip() for rule in re.findall(r"([^{}]+)\{", css) for part in rule.split(",")]
    assert [each for each in selectors if not each.startswith("@") and ".elbowroom-" not in each] == []
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(|!important|url\(|@import", css) == []
