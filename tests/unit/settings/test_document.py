"""`docs/settings.md` has every key with its default, no other key, and examples that work."""

import json
import re
from pathlib import Path

import pytest
from cases import cases
from pydantic import BaseModel
from settings_file import AGENT, load

from elbowroom.settings.fields import SecretRef
from elbowroom.settings.keys import AGENT_TABLES, TABLE_LISTS, TABLES
from elbowroom.settings.model import Sampling, Settings

DOCUMENT = (Path(__file__).parents[3] / "docs" / "settings.md").read_text(encoding="utf-8")
MODELS: dict[str, type[BaseModel]] = {
    **{f"## `[{table}]`": model for table, model in TABLES.items()},
    **{f"## `[[{table}]]`": model for table, model in TABLE_LISTS.items()},
    "### `sampling`": Sampling,
    **{f"### `agents.{table}`": model for table, model in AGENT_TABLES.items()},
}
BY_KIND = {"base_url", "api_key", "manage_context"}
EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)


def rows_below(heading: str) -> dict[str, str]:
    """Return the default of each key in the table below a heading."""
    section = DOCUMENT[DOCUMENT.index(f"\n{heading}\n") + len(heading) + 2 :]
    section = re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))


def default_of(model: type[BaseModel], name: str) -> str:
    """Return how the document writes the default of a key."""
    field = model.model_fields[name]
    if field.is_required():
        return "required"
    if name in BY_KIND:
        return "by kind"
    match field.get_default(call_default_factory=True):
        case None:
            return "not set"
        case SecretRef() as secret:
            return f'`"{secret}"`'
        case Sampling() as sampling:
            return f"`{json.dumps(sampling.as_request_fields())}`"
        case BaseModel() as own:
            return f"`{json.dumps(own.model_dump(exclude_defaults=True))}`"
        case value:
            return f"`{json.dumps(value)}`"


@cases("heading", MODELS)
def test_the_tables_have_every_key_with_its_default(heading: str) -> None:
    """Each table of the file has a table in the document: the same keys in the same order, the same defaults."""
    model = MODELS[heading]
    assert list(rows_below(heading).items()) == [(name, default_of(model, name)) for name in model.model_fields]


def test_every_table_of_the_file_has_a_section() -> None:
    """A table that is added to the settings is missed here until it is explained."""
    assert set(Settings.model_fields) == {*TABLES, *TABLE_LISTS}
    headings = {line for line in DOCUMENT.splitlines() if re.match(r"#+ `", line)}
    assert headings == set(MODELS)


@pytest.mark.parametrize("kind", ["lmstudio", "ollama"])
def test_the_addresses_of_the_kinds_are_the_real_ones(tmp_path: Path, kind: str) -> None:
    """The document's default addresses are those that are used."""
    provider = load(tmp_path, f'[[providers]]\nid = "one"\nkind = "{kind}"\n').settings.providers[0]
    assert f"`{provider.base_url}` for" in rows_text("base_url")


def rows_text(key: str) -> str:
    """Return the row of a key."""
    return next(line for line in DOCUMENT.splitlines() if line.startswith(f"| `{key}` |"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_accepted_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    """What the document suggests can be pasted into a file as it stands, once the agents it names are there."""
    (tmp_path / "token").write_text("t", encoding="utf-8")
    for folder in ("Private", "Work/Clients"):
        (tmp_path / "Notes" / folder).mkdir(parents=True)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    agents = AGENT.replace("writer", "critic") if "pruning_agent" in example else ""
    assert load(tmp_path, example + agents, {"WORKSTATION_KEY": "k", "TICKETS_AUTHORIZATION": "k"}).warnings == ()


def test_the_examples_are_accepted_together(tmp_path: Path) -> None:
    """All of them in one file do not contradict each other; of those for the store a file has one."""
    together = [example for example in EXAMPLES if "postgresql://" not in example]
    assert 5 <= len(together) < len(EXAMPLES)
    (tmp_path / "token").write_text("t", encoding="utf-8")
    settings = load(tmp_path, "\n".join(together), {"WORKSTATION_KEY": "k"}).settings
    assert [agent.id for agent in settings.agents] == ["writer", "critic"]


def test_the_variables_it_names_work(tmp_path: Path) -> None:
    """Every ELBOWROOM_SERVER__ variable in the document is one."""
    names = set(re.findall(r"ELBOWROOM_SERVER__\w+", DOCUMENT))
    assert names
    assert load(tmp_path, "", dict.fromkeys(names, "1")).warnings == ()
