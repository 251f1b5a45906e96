"""`config show`: each value in force with the place it comes from."""

from pathlib import Path

from settings_file import AGENT, load

from elbowroom.settings.load import list_settings


def listing(folder: Path, text: str = "", environ: dict[str, str] | None = None) -> dict[str, str]:
    """Return the lines by key, as `value   (source)`, with `FILE` for the path of the file."""
    lines = list_settings(load(folder, text, environ), environ or {})
    pairs = (line.replace(str(folder / "settings.toml"), "FILE").split(" = ", 1) for line in lines)
    return {key: rest for key, rest in pairs}  # noqa: C416  # a pair is a list here


def test_every_key_is_listed_without_a_file(tmp_path: Path) -> None:
    """The defaults are all there, so that the listing answers what is in force."""
    assert listing(tmp_path) == {
        "server.host": "'127.0.0.1'   (default)",
        "server.port": "2345   (default)",
        "server.token": "env:ELBOWROOM_TOKEN, not set   (default)",
        "server.open_webui_secret": "not set   (default)",
        "server.allowed_hosts": "[]   (default)",
        "server.allowed_origins": "[]   (default)",
        "server.client_tools": "'auto'   (default)",
        "server.calls_in_text": "true   (default)",
        "server.tool_events": "true   (default)",
        "server.task_history": "'ends'   (default)",
        "server.side_requests": "true   (default)",
        "server.max_waiting": "1000   (default)",
        "server.chats_at_once": "0   (default)",
        "server.stop_notice_seconds": "0   (default)",
        "server.drain_seconds": "5   (default)",
        "providers[0].id": "'lmstudio'   (default)",
        "providers[0].kind": "'lmstudio'   (default)",
        "providers[0].base_url": "'http://127.0.0.1:1234'   (default)",
        "providers[0].base_urls": "[]   (default)",
        "providers[0].machine_of": "''   (default)",
        "providers[0].api_key": "env:LM_API_TOKEN, not set   (default)",
        "providers[0].home": "''   (default)",
        "providers[0].model_files": "{}   (default)",
        "providers[0].manage_context": "not set   (default)",
        "agents": "[]   (default)",
        "compaction.enabled": "true   (default)",
        "compaction.auto": "true   (default)",
        "compaction.background": "true   (default)",
        "compaction.pruning_agent": "'same'   (default)",
        "compaction.model": "''   (default)",
        "compaction.threshold_ratio": "0.8   (default)",
        "compaction.max_restarts": "3   (default)",
        "compaction.max_pruning_seconds": "60   (default)",
        "compaction.summary_prompt": "''   (default)",
        "compaction.summary_directives": "[]   (default)",
        "compaction.retain_prompt": "''   (default)",
        "compaction.retain_directives": "[]   (default)",
        "compaction.retain_last_turns": "not set   (default)",
        "compaction.recall": "'auto'   (default)",
        "compaction.notices": "'auto'   (default)",
        "compaction.chat_command": "true   (default)",
        "tool_output.enabled": "true   (default)",
        "tool_output.context_budget_tokens": "0   (default)",
        "tool_output.max_message_bytes": "51200   (default)",
        "tool_output.max_line_length": "2000   (default)",
        "tool_output.recent_calls_to_keep": "6   (default)",
        "tool_output.keep_last_turns": "3   (default)",
        "tool_output.clear_after_turns": "8   (default)",
        "tool_output.truncation_threshold": "10000   (default)",
        "tool_output.protect_tokens": "40000   (default)",
        "tool_output.minimum_tokens": "20000   (default)",
        "tool_output.max_history_summary_tokens": "500   (default)",
        "tool_output.preserve_errors_verbatim": "true   (default)",
        "tool_output.kinds": "{}   (default)",
        "vault.path": "''   (default)",
        "vault.include": "[]   (default)",
        "vault.exclude": "[]   (default)",
        "vault.write": "false   (default)",
        "mcp_servers": "[]   (default)",
        "models": "[]   (default)",
        "memory.enabled": "false   (default)",
        "memory.max_tokens": "500   (default)",
        "memory.flush": "true   (default)",
        "memory.flush_threshold": "4000   (default)",
        "memory.flush_seconds": "20   (default)",
        "store.url": "''   (default)",
        "store.conversations": "true   (default)",
        "store.retention_days": "90   (default)",
        "store.max_gb": "2   (default)",
        "store.agents": "'file'   (default)",
    }


def test_each_value_names_its_source(tmp_path: Path) -> None:
    """File, variable and default are told apart key by key, in lists of tables too."""
    text = f"[server]\nport = 1001\nallowed_hosts = ['nas']\n{AGENT}enabled = false\n"
    lines = listing(tmp_path, text, {"ELBOWROOM_SERVER__PORT": "1002"})
    assert lines["server.port"] == "1002   (environment variable ELBOWROOM_SERVER__PORT)"
    assert lines["server.allowed_hosts"] == "['nas']   (FILE)"
    assert lines["agents[0].enabled"] == "false   (FILE)"
    assert lines["agents[0].max_turns"] == "50   (default)"


def test_values_that_are_tables_have_a_source_too(tmp_path: Path) -> None:
    """A sampling parameter that is a table or a list of tables comes from the file it stands in."""
    text = AGENT + "sampling = { logit_bias = { 42 = 1 }, stop = ['a'], samplers = [{ a = 1 }], empty = {} }\n"
    lines = listing(tmp_path, text)
    assert lines["agents[0].sampling.logit_bias"] == "{'42': 1}   (FILE)"
    assert lines["agents[0].sampling.stop"] == "['a']   (FILE)"
    assert lines["agents[0].sampling.samplers"] == "[{'a': 1}]   (FILE)"
    assert lines["agents[0].sampling.empty"] == "{}   (FILE)"
    assert "agents[0].sampling.temperature" not in lines


def test_an_empty_list_of_providers_is_the_files(tmp_path: Path) -> None:
    """`providers = []` is a choice, and shown as one."""
    assert listing(tmp_path, "providers = []\n")["providers"] == "[]   (FILE)"


def test_text_of_several_lines_stays_on_its_line(tmp_path: Path) -> None:
    """One line a value, whatever is in it."""
    lines = listing(tmp_path, AGENT + 'instructions = "One\\nTwo"\n')
    assert lines["agents[0].instructions"] == "'One\\nTwo'   (FILE)"
