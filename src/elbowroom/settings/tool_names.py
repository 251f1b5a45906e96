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
VAULT_TOOLS: Final = frozenset({VAULT, *VAULT_READERS, *VAULT_WRITERS})
TOOL_OUTPUT_CACHE: Final = "tool_output_cache"
"""Both tools that read the results of earlier calls."""
SAVE_MEMORY: Final = "save_memory"
SEARCH_MEMORY: Final = "search_memory"
MEMORY_TOOLS: Final = frozenset({SAVE_MEMORY, SEARCH_MEMORY})
TOOLS: Final = (VAULT, *VAULT_READERS, *VAULT_WRITERS, TOOL_OUTPUT_CACHE, SAVE_MEMORY, SEARCH_MEMORY)
"""Everything that `tools` of an agent may name."""
