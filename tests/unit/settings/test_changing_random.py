"""Whatever a client sends as a change is either made or refused in words, and shown again as it was sent."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from examples import MANY
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from settings_file import AGENT

from elbowroom.errors import Conflict, WrongSettings
from elbowroom.settings.change import SettingsChanger
from elbowroom.settings.keys import TABLE_LISTS, TABLES
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.merge import shown_values
from elbowroom.settings.model import Sampling

MODELS: list[type[BaseModel]] = [*TABLES.values(), *TABLE_LISTS.values(), Sampling]
FIELDS = sorted({name for model in MODELS for name in model.model_fields})
NAMES = (
    st.sampled_from([*TABLES, *TABLE_LISTS]) | st.sampled_from(FIELDS) | st.sampled_from(["writer", "set", "from", ""])
)
PLAIN = st.none() | st.booleans() | st.integers(-3, 70000) | st.floats(0, 2) | st.text(max_size=4) | NAMES
JSON = st.recursive(
    PLAIN, lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=4), max_leaves=8
)
ROWS = st.dictionaries(st.sampled_from(["writer", "lmstudio", "new"]), JSON, max_size=3) | st.lists(JSON, max_size=3)
PATCHES = st.dictionaries(
    st.sampled_from([*TABLES, "odd"]), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3)
)
ROW_PATCHES = st.dictionaries(st.sampled_from([*TABLE_LISTS]), ROWS)
FILE = f'# mine\n\n{AGENT}sampling.seed = 1\n[[mcp_servers]]\nname = "new"\ncommand = "x"\n'


@pytest.mark.slow
@MANY
@given(patch=st.builds(lambda tables, rows: {**tables, **rows}, PATCHES, ROW_PATCHES))
def test_no_change_is_a_mistake_of_ours(patch: dict[str, Any]) -> None:
    """A change is made or refused, never half of it, and nothing else happens; what is shown can be sent back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_text(FILE, encoding="utf-8")
        live = LiveSettings(path, {}, {})
        changer = SettingsChanger(live, {})
        before = live.current()
        try:
            changer.change(lambda _: patch)
        except (WrongSettings, Conflict):
            assert path.read_text(encoding="utf-8") == FILE
            assert live.current() is before
            return
        written = path.read_bytes()
        assert written.startswith(b"# mine\n")
        changer.change(lambda _: shown_values(live.current(), {}))
        assert path.read_bytes() == written
