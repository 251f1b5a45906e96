// What the JSON schema cannot tell about a setting: its name for people, a sentence of help, how it is entered.
// A setting without an entry appears all the same, under the name that the schema gives it.
// widget: area | model | choices | select | secret | secrets; options: a list's name; rare: folded away at first.

export const SECTIONS = {
  server: ["Server", "Where elbowroom listens and whom it lets in."],
  vault: ["Vault", "The folder of notes that agents may work in."],
  memory: ["Memory", "What agents remember beyond a conversation."],
  tool_output: ["Tool results", "How much of the window the results of tools may take."],
  store: ["Store", "What is kept on this computer, and for how long."],
  compaction: ["When a conversation fills its window", "Its older part is replaced by a summary; the originals are kept."],
};

export const HINTS = {
  "compaction.pruning_agent": { label: "Pruning agent", widget: "select", options: "pruners", help: "Who decides what stays and writes the summary." },
  "compaction.threshold_ratio": { label: "Compact from", unit: "of the window", help: "A share from 0.6 to 0.88. 0.8 is 80 %." },
  "compaction.model": { label: "Model for summaries", widget: "model", options: "models", help: "Another model for this work. Empty: the pruning agent’s own." },
  "compaction.notices": { label: "Notices", help: "How chat programs hear of it. “auto” suits all." },
  "compaction.retain_last_turns": { label: "Turns kept word for word" },
  "compaction.enabled": { label: "Compact conversations", help: "Off: a conversation that no longer fits gets an error, never a silent cut." },
  "compaction.auto": { label: "By itself", help: "Off: only when you ask for it." },
  "compaction.background": { label: "While you read", help: "Compacts behind an answer, so that the next one begins at once." },
  "compaction.max_restarts": { label: "Most continuations of one answer", rare: true },
  "compaction.summary_prompt": { label: "Summary prompt", widget: "area", rare: true, help: "In place of the built-in words." },
  "compaction.summary_directives": { label: "Summary directives", rare: true, help: "One a line, in addition." },
  "compaction.retain_prompt": { label: "What to keep: prompt", widget: "area", rare: true, help: "In place of the built-in words." },
  "compaction.retain_directives": { label: "What to keep: directives", rare: true, help: "One a line, in addition." },

  "agents.name": { label: "Name", help: "What people see in their chat program." },
  "agents.id": { label: "ID", help: "What programs send as the model. Letters, digits, dots and dashes." },
  "agents.enabled": { label: "Offered to clients" },
  "agents.instructions": { label: "Instructions", widget: "area", rows: 7, help: "Told to the model before every conversation." },
  "agents.provider": { label: "Provider", widget: "select", options: "providers" },
  "agents.model": { label: "Model", widget: "model", options: "models" },
  "agents.tools": { label: "Tools", widget: "choices", options: "tools" },
  "agents.agent_tools": { label: "Agents it can ask", widget: "choices", options: "otherAgents" },
  "agents.mcp": { label: "MCP servers", widget: "choices", options: "mcp", more: "Single tools, as server/tool, one a line" },
  "agents.max_turns": { label: "Most model calls per request" },
  "agents.client_tools": { label: "Tools of the chat program", help: "pass: as they come. slim: without descriptions. drop: left out." },
  "agents.handoffs": { label: "Agents it can hand over to", widget: "choices", options: "otherAgents", rare: true },
  "agents.tool_timeout": { label: "Longest call of a tool", unit: "seconds", rare: true },
  "agents.tool_name": { label: "Its name as a tool", rare: true, help: "Empty: ask_ and its ID." },
  "agents.tool_description": { label: "Its description as a tool", widget: "area", rare: true },
  "agents.sampling": { label: "Sampling", rare: true, help: "Counts where the chat program sends no value of its own.", more: "Other parameters" },
  "agents.vault": { label: "Vault of this agent", rare: true, help: "Narrows what the vault settings open." },
  "agents.vault.include": { label: "Only these folders", help: "One a line. Empty: all." },
  "agents.vault.exclude": { label: "Never these folders", help: "One a line." },
  "agents.vault.write": { label: "May change notes, where the vault allows it" },
  "agents.tool_output": { label: "Tool results of this agent", rare: true },

  "providers.id": { label: "ID", help: "Models are named after it: id/model." },
  "providers.kind": { label: "Kind", help: "openai is any other server with OpenAI’s interface." },
  "providers.base_url": { label: "Address", help: "Empty: the usual one of LM Studio or Ollama." },
  "providers.api_key": { label: "API key", widget: "secret" },
  "providers.manage_context": { label: "Keep conversations within the window" },
  "providers.home": { label: "LM Studio’s folder", rare: true, help: "Found by itself where it is empty." },
  "providers.model_files": { label: "Model files", rare: true, help: "A model’s ID, and its GGUF file or folder.", key: "Model", item: "File" },

  "mcp_servers.name": { label: "Name" },
  "mcp_servers.enabled": { label: "Enabled" },
  "mcp_servers.command": { label: "Program and arguments", help: "One a line. Or give an address instead." },
  "mcp_servers.url": { label: "Address", help: "Of a server that runs already." },
  "mcp_servers.cwd": { label: "Folder to start in", rare: true },
  "mcp_servers.env": { label: "Environment", widget: "secrets", rare: true, key: "Variable" },
  "mcp_servers.headers": { label: "Headers", widget: "secrets", rare: true, key: "Header" },
  "mcp_servers.connect_timeout": { label: "Longest wait for its start", unit: "seconds", rare: true },
  "mcp_servers.timeout": { label: "Longest wait for an answer", unit: "seconds", rare: true },

  "server.host": { label: "Address to listen on", help: "127.0.0.1 is this computer only; anything wider needs a token." },
  "server.port": { label: "Port" },
  "server.token": { label: "Token", widget: "secret", help: "What chat programs send as their API key." },
  "server.allowed_hosts": { label: "Further names of this server", help: "One a line, such as nas.local." },
  "server.allowed_origins": { label: "Web pages that may call", help: "One origin a line." },
  "server.client_tools": { label: "Tools of the chat program", help: "For models without an agent." },

  "vault.path": { label: "Folder", help: "The full path, such as ~/Notes." },
  "vault.include": { label: "Only these folders", help: "As seen from the vault, one a line. Empty: all." },
  "vault.exclude": { label: "Never these folders", help: "One a line." },
  "vault.write": { label: "Agents may change notes" },

  "memory.enabled": { label: "Agents may remember" },
  "memory.max_tokens": { label: "Most that is told of it", unit: "tokens" },
  "memory.flush": { label: "Save before a compaction" },
  "memory.flush_threshold": { label: "How long before", unit: "tokens", rare: true },
  "memory.flush_seconds": { label: "Longest time for it", unit: "seconds", rare: true },

  "store.url": { label: "Database", help: "Empty: a file in the data folder." },
  "store.conversations": { label: "Keep conversations" },
  "store.retention_days": { label: "Keep for", unit: "days", help: "0 keeps them for ever." },
  "store.max_gb": { label: "Most space", unit: "GB" },

  "tool_output.enabled": { label: "Keep results and shorten old ones" },
  "tool_output.context_budget_tokens": { label: "Room in the window", unit: "tokens", help: "0: worked out from the window." },
  "tool_output.max_message_bytes": { label: "Most of one result", unit: "bytes" },
  "tool_output.max_line_length": { label: "Longest line", unit: "characters" },
  "tool_output.recent_calls_to_keep": { label: "Latest calls left alone", rare: true },
  "tool_output.keep_last_turns": { label: "Latest steps left alone", rare: true },
  "tool_output.clear_after_turns": { label: "One line after", unit: "steps", rare: true },
  "tool_output.truncation_threshold": { label: "Nothing is shortened below", unit: "characters", rare: true },
  "tool_output.max_history_summary_tokens": { label: "Longest summary of removed calls", unit: "tokens", rare: true },
  "tool_output.kinds": { label: "Kinds of tools", rare: true, key: "Tool", item: "Kind" },
};

export const hintOf = (path) => HINTS[path.filter((part) => typeof part === "string").join(".")] ?? {};

export const WORDS = {
  plan: "by the pruning agent", retry: "by the pruning agent, at its second try", heuristic: "by code, without a model",
  last: "only the last messages kept", tail: "only the last messages kept",
  lmstudio: "LM Studio", ollama: "Ollama", openai: "OpenAI-compatible",
  environment: "an environment variable", flag: "a flag of the command",
};
