// What the JSON schema cannot tell about a setting: its name for people, a sentence of help, and how it is entered.
// A setting without an entry appears all the same, under the name that the schema gives it.
// options: a list's name; more: a label for what is not on it; rare: folded away at first.

export const SECTIONS = {
  server: ["Server", "Where elbowroom listens and whom it lets in."],
  vault: ["Vault", "The folder of notes that agents may work in."],
  memory: ["Memory", "What agents remember beyond a conversation."],
  tool_output: ["Tool results", "How much of the window they may take."],
  store: ["Store", "What is kept on this computer, and for how long."],
  compaction: ["When a conversation fills its window", "A summary replaces its older part; the originals are kept."],
};

const HINTS = {
  compaction: {
    pruning_agent: ["Pruning agent", "Who decides what stays and writes the summary.", { widget: "select", options: "pruners" }],
    threshold_ratio: ["Compact from", "A share from 0.6 to 0.88. 0.8 is 80 %.", { unit: "of the window" }],
    model: ["Model for summaries", "Empty: the pruning agent’s own.", { widget: "model", options: "models" }],
    notices: ["Notices", "How chat programs hear of it. “auto” suits all."],
    retain_last_turns: ["Turns kept word for word", "Empty: as many as fit."],
    enabled: ["Compact conversations", "Off: what no longer fits gets an error."],
    auto: ["By itself", "Off: only when you ask for it."],
    background: ["While you read", "Behind an answer, so that the next one begins at once."],
    max_restarts: ["Most continuations of one answer", "", { rare: true }],
    summary_prompt: ["Summary prompt", "In place of the built-in words.", { widget: "area", rare: true }],
    summary_directives: ["Summary directives", "One a line, in addition.", { rare: true }],
    retain_prompt: ["What to keep: prompt", "In place of the built-in words.", { widget: "area", rare: true }],
    retain_directives: ["What to keep: directives", "One a line, in addition.", { rare: true }],
  },
  agents: {
    name: ["Name", "What people see in their chat program."],
    id: ["ID", "What programs send as model."],
    enabled: ["Offered to clients"],
    instructions: ["Instructions", "Told to the model before every conversation.", { widget: "area", rows: 7 }],
    provider: ["Provider", "", { widget: "select", options: "providers" }],
    model: ["Model", "", { widget: "model", options: "models" }],
    tools: ["Tools", "", { widget: "choices", options: "tools" }],
    agent_tools: ["Agents it can ask", "", { widget: "choices", options: "otherAgents" }],
    mcp: ["MCP servers", "", { widget: "choices", options: "mcp", more: "Single tools, as server/tool, one a line" }],
    max_turns: ["Most model calls per request"],
    client_tools: ["Tools of the chat program", "pass: as they come; slim: shortened; drop: left out."],
    handoffs: ["Agents it can hand over to", "", { widget: "choices", options: "otherAgents", rare: true }],
    tool_timeout: ["Longest call of a tool", "", { unit: "seconds", rare: true }],
    tool_name: ["Its name as a tool", "Empty: ask_ and its ID.", { rare: true }],
    tool_description: ["Its description as a tool", "", { widget: "area", rare: true }],
    sampling: ["Sampling", "Where the chat program sends no value.", { rare: true, more: "Other parameters" }],
    vault: ["Vault of this agent", "Narrows what the vault settings open.", { rare: true }],
    "vault.write": ["May change notes, where the vault allows it"],
    tool_output: ["Tool results of this agent", "", { rare: true }],
  },
  providers: {
    id: ["ID", "Models are named after it: id/model."],
    kind: ["Kind", "For any other server with OpenAI’s interface: OpenAI-compatible."],
    base_url: ["Address", "Empty: the usual one of LM Studio or Ollama."],
    api_key: ["API key", "", { widget: "secret" }],
    manage_context: ["Keep conversations within the window"],
    home: ["LM Studio’s folder", "Found by itself where it is empty.", { rare: true }],
    model_files: ["Model files", "A model’s ID, and its GGUF file or folder.", { rare: true, key: "Model", item: "File" }],
  },
  mcp_servers: {
    command: ["Program and arguments", "One a line. Or give an address instead."],
    url: ["Address", "Of a server that runs already."],
    cwd: ["Folder to start in", "", { rare: true }],
    env: ["Environment", "", { widget: "secrets", rare: true, key: "Variable" }],
    headers: ["Headers", "", { widget: "secrets", rare: true, key: "Header" }],
    connect_timeout: ["Longest wait for its start", "", { unit: "seconds", rare: true }],
    timeout: ["Longest wait for an answer", "", { unit: "seconds", rare: true }],
  },
  server: {
    host: ["Address to listen on", "127.0.0.1: only this computer. Others need a token."],
    token: ["Token", "What chat programs send as their API key.", { widget: "secret" }],
    allowed_hosts: ["Further names of this server", "One a line, such as nas.local."],
    allowed_origins: ["Web pages that may call", "One origin a line."],
    client_tools: ["Tools of the chat program", "For models without an agent."],
    calls_in_text: ["Take calls written as text", "Where they name a tool that was offered.", { rare: true }],
    tool_events: ["Tell what tools do", "A status in the chat for each call and its result.", { rare: true }],
  },
  vault: {
    path: ["Folder", "The full path, such as ~/Notes."],
    include: ["Only these folders", "One a line, as seen from the vault. Empty: all."],
    exclude: ["Never these folders", "One a line."],
    write: ["Agents may change notes"],
  },
  memory: {
    enabled: ["Agents may remember"],
    max_tokens: ["Most that is told of it", "", { unit: "tokens" }],
    flush: ["Save before a compaction"],
    flush_threshold: ["How long before", "", { unit: "tokens", rare: true }],
    flush_seconds: ["Longest time for it", "", { unit: "seconds", rare: true }],
  },
  store: {
    url: ["Database", "Empty: a file in the data folder."],
    conversations: ["Keep conversations"],
    retention_days: ["Keep for", "0 keeps them for ever.", { unit: "days" }],
    max_gb: ["Most space", "", { unit: "GB" }],
  },
  tool_output: {
    enabled: ["Keep results and shorten old ones"],
    context_budget_tokens: ["Room in the window", "0: worked out from the window.", { unit: "tokens" }],
    max_message_bytes: ["Most of one result", "Less where the window has less room.", { unit: "bytes" }],
    max_line_length: ["Longest line", "", { unit: "characters" }],
    recent_calls_to_keep: ["Latest calls left alone", "", { rare: true }],
    keep_last_turns: ["Latest steps left alone", "", { rare: true }],
    clear_after_turns: ["One line after", "", { unit: "steps", rare: true }],
    truncation_threshold: ["Nothing is shortened below", "", { unit: "characters", rare: true }],
    protect_tokens: ["Newest results left alone", "In a large window.", { unit: "tokens", rare: true }],
    minimum_tokens: ["Least that shortening frees", "", { unit: "tokens", rare: true }],
    max_history_summary_tokens: ["Longest summary of removed calls", "", { unit: "tokens", rare: true }],
    preserve_errors_verbatim: ["Keep errors word for word", ""],
    kinds: ["Kinds of tools", "", { rare: true, key: "Tool", item: "Kind" }],
  },
};

export function hintOf(path) {
  const [label, help, more] = HINTS[path[0]]?.[path.slice(1).join(".")] ?? HINTS[path.at(-2)]?.[path.at(-1)] ?? [];
  return { label, help: help || undefined, ...more };
}

export const WORDS = {
  plan: "by the pruning agent", retry: "by the pruning agent, at its second try", digest: "by code, without a model",
  "last messages": "only the last messages kept",
  lmstudio: "LM Studio", ollama: "Ollama", openai: "OpenAI-compatible",
};
