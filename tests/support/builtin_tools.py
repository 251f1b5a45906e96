"""The tools of a chat program as Open WebUI 0.12.4 names its own, with five MCP servers beside them."""

from typing import Any, Final

BUILTIN: Final = """
get_current_timestamp calculate_timestamp ask_user list_knowledge_bases
search_knowledge_bases query_knowledge_bases grep_knowledge_files search_knowledge_files
query_knowledge_files view_knowledge_file search_chats view_chat search_memories
list_memory_paths read_memory_path list_memories update_memory add_memory
replace_memory_content delete_memory search_notes view_note write_note
replace_note_content create_skill create_tasks update_task create_automation
update_automation list_automations toggle_automation delete_automation
search_calendar_events create_calendar_event update_calendar_event delete_calendar_event
""".split()  # noqa: SIM905  # a list of words is easier to read
MCP_SERVERS: Final = {
    "github": "search_code get_file create_issue list_issues create_pull_request list_commits merge_pull_request fork",
    "files": "read_file write_file edit_file list_directory move_file search_files get_file_info create_directory",
    "browser": "navigate click type_text take_screenshot evaluate go_back press_key wait_for",
    "mail": "search_mail read_mail send_mail list_folders move_mail flag_mail reply_mail list_accounts",
    "sql": "query list_tables describe_table insert_rows update_rows explain begin_transaction commit",
}
WORDS: Final = (
    "It searches everything that the person has kept, by the meaning of the words and by the words themselves, and "
    "returns the best places with their titles, so that you can read on in those that matter for the question. "
)


def builtin_tools() -> list[dict[str, Any]]:
    """Return the thirty-six tools, which take about 4,600 tokens as they are."""
    return [tool_of(name) for name in BUILTIN]


def tools_of_mcp_servers() -> list[dict[str, Any]]:
    """Return eight tools of each of five servers."""
    return [tool_of(f"{server}_{name}") for server, names in MCP_SERVERS.items() for name in names.split()]


def tool_of(name: str) -> dict[str, Any]:
    """Return a tool that needs a `query`, and takes a `count` besides."""
    properties = {
        "query": {"type": "string", "description": WORDS},
        "count": {"type": "integer", "description": "The most results to return (default: 5).", "default": 5},
    }
    parameters = {"type": "object", "properties": properties, "required": ["query"]}
    description = f"{name.replace('_', ' ').capitalize()} for the user and return what was found. {WORDS}"
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
