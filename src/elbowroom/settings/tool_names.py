"""The names under which settings give agents their tools."""

from typing import Final

VAULT: Final = "vault"
"""All vault tools that the settings allow."""
VAULT_READERS: Final = ("vault.list", "vault.read", "vault.outline", "vault.search", "vault.count")
VAULT_WRITERS: Final = (
    "vault.create",
    "vault.append",
    "vault.patch",
    "vault.rename",
    "vault.delete",
    "vault.undo",
)
VAULT_TOOLS: Final = (*VAULT_READERS, *VAULT_WRITERS)


def unknown_tool(name: str) -> bool:
    """Tell whether there is no tool of this name."""
    return name != VAULT and name not in VAULT_TOOLS
