"""What the settings say about the vault, and about who may use it."""

from pathlib import Path

import pytest
from cases import cases
from hanging_folders import hanging
from settings_file import AGENT, load, refusal
from vaults import changes_of

from elbowroom.agents.tools.vault import READERS, WRITERS, vault_tools
from elbowroom.settings.references import VAULT_READERS, VAULT_WRITERS
from elbowroom.vault.names import Scope

VAULT = "[vault]\npath = '~/Notes'\n"


def test_a_vault_and_its_tools(tmp_path: Path) -> None:
    """The example of the documentation: what is not said has its default, which is not to write."""
    settings = load(tmp_path, f"{VAULT}exclude = 'Private, Work/Clients/'\n{AGENT}tools = 'vault'\n").settings
    assert (settings.vault.include, settings.vault.exclude) == ((), ("Private", "Work/Clients"))
    assert settings.vault.write is False
    assert settings.agents[0].tools == ("vault",)


@cases(
    ("text", "said"),
    [
        (f"{VAULT}{AGENT}tools = ['vault.raed']\n", "'vault.read'"),
        (f"{AGENT}tools = ['vault.read']\n", "vault tools only where [vault] has a path"),
        (f"{VAULT}{AGENT}tools = ['vault.read', 'vault.patch']\n", "while [vault] has write = false"),
        (
            f"{VAULT}write = true\n{AGENT}tools = ['vault.patch']\nvault = {{ write = false }}\n",
            "while agents[0].vault has write = false",
        ),
        ("[vault]\npath = 'Notes'\n", "the full path of a folder"),
        (f"{VAULT}exclude = ['../x']\n", "as seen from the vault"),
        (f"{VAULT}include = ['/x']\n", "as seen from the vault"),
        (f"{VAULT}include = ['a\\\\b']\n", "as seen from the vault"),
        (f"{VAULT}write = 'perhaps'\n", "true or false"),
    ],
)
def test_wrong_settings(tmp_path: Path, text: str, said: str) -> None:
    """Each is refused with its key and what is accepted."""
    refused = refusal(tmp_path, text)
    assert refused.startswith("FILE: ")
    assert said in refused


def test_every_name_has_its_tool(tmp_path: Path) -> None:
    """The names that settings accept are those of the tools, and `vault` is all that may be used."""
    assert tuple(tool.name for tool in READERS) == VAULT_READERS
    assert tuple(tool.name for tool in WRITERS) == VAULT_WRITERS
    changes = changes_of(tmp_path, {})

    def names(*wanted: str, may_write: bool) -> list[str]:
        return [tool.name for tool in vault_tools(wanted, changes, may_write=may_write)]

    readers, writers = ([name.replace(".", "_") for name in group] for group in (VAULT_READERS, VAULT_WRITERS))
    assert names("vault", may_write=False) == readers
    assert names("vault", "vault.read", may_write=True) == [*readers, *writers]
    assert names("vault.undo", "vault.list", may_write=True) == ["vault_list", "vault_undo"]
    assert names("vault.undo", "vault.list", may_write=False) == ["vault_list"]


def test_kinds(tmp_path: Path) -> None:
    """What reads, what finds and what changes notes is declared, so that nobody has to guess it from the names."""
    tools = vault_tools(["vault"], changes_of(tmp_path, {}), may_write=True)
    assert {tool.name.removeprefix("vault_"): tool.kind for tool in tools} == {
        **dict.fromkeys(["read", "outline"], "read"),
        **dict.fromkeys(["list", "search", "count"], "query"),
        **dict.fromkeys(["create", "append", "patch", "rename", "delete", "undo"], "write"),
    }


def test_an_agent_narrows_what_is_open(tmp_path: Path) -> None:
    """What is not open in both is closed, and a misspelt key is told."""
    narrowed = "vault = { include = ['Work'], wirte = false }"
    (tmp_path / "Work").mkdir()
    loaded = load(tmp_path, f"[vault]\npath = '{tmp_path}'\nwrite = true\n{AGENT}tools = 'vault'\n{narrowed}\n")
    assert loaded.settings.agents[0].vault.include == ("Work",)
    assert loaded.warnings == (
        f"{loaded.path}: agents[0].vault.wirte is not a setting of this version (did you mean write?); it is ignored.",
    )
    scope = Scope.of(["Work", "Home"], ["Work/B"], Scope.of(["Work"], ["Work/A"]))
    folders = ["Work", "Work/A", "Work/B", "Home", "Else"]
    assert [folder for folder in folders if scope.allows((*folder.split("/"), "x.md"))] == ["Work"]
    assert not scope.is_all
    assert Scope.of([], [], Scope()).is_all


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    """A misspelt folder under `exclude` would close nothing, so it is told; case does not matter."""
    (tmp_path / "Notes" / "Private" / "Diary").mkdir(parents=True)
    vault = f"[vault]\npath = '{tmp_path / 'Notes'}'\n"
    loaded = load(tmp_path, f"{vault}exclude = ['private/diary', 'Privat']\n{AGENT}vault = {{ include = ['Work'] }}\n")
    assert [warning.removeprefix(f"{loaded.path}: ") for warning in loaded.warnings] == [
        "vault.exclude: there is no folder 'Privat' in the vault.",
        "agents[0].vault.include: there is no folder 'Work' in the vault.",
    ]
    [warning] = load(tmp_path, f"[vault]\npath = '{tmp_path / 'Gone'}'\n").warnings
    assert "vault.path: there is no folder" in warning


@pytest.mark.slow
def test_a_vault_that_hangs_keeps_nobody_from_the_settings(tmp_path: Path) -> None:
    """What does not answer at once is named, and the rest of the settings counts."""
    with hanging(tmp_path / "notes") as looked:
        loaded = load(tmp_path, f"[vault]\npath = '{tmp_path / 'notes'}'\nexclude = ['Diary']\n")
    assert looked == {"elsewhere"}
    [warning] = loaded.warnings
    assert f"vault.path: {tmp_path / 'notes'} does not answer" in warning
    assert loaded.settings.vault.exclude == ("Diary",)
