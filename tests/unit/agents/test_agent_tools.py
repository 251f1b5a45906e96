"""Names of tools that stand for agents."""

import pytest

from elbowroom.agents.offered import LONGEST_NAME, free_name


@pytest.mark.parametrize(
    ("wanted", "taken", "name"),
    [
        ("ask_editor", [], "ask_editor"),
        ("ask_my.editor", [], "ask_my_editor"),
        ("ask_editor", ["ask_editor"], "ask_editor_2"),
        ("vault_list", ["vault.list"], "vault_list_2"),
        ("ask_editor", ["ask_editor", "ask_editor_2"], "ask_editor_3"),
        ("a" * 80, [], "a" * LONGEST_NAME),
        ("a" * 80, ["a" * LONGEST_NAME], "a" * (LONGEST_NAME - 2) + "_2"),
    ],
)
def test_free_name(wanted: str, taken: list[str], name: str) -> None:
    """No two tools have names that LM Studio writes alike, and none is longer than models may call."""
    assert free_name(wanted, taken) == name
