// What the JSON schema cannot tell about a setting: its name for people, a sentence of help, and how it is entered.
// A setting without an entry appears all the same, under the name that the schema gives it.
// options: a list's name; more: a label for what is not on it; rare: folded away at first.

export const SECTIONS = {
	compaction: ["Compaction", "When a conversation fills its window, a summary replaces its older part. The originals are kept."],
	vault: ["Vault", "The folder of notes that agents may work in."],
	memory: ["Memory", "What agents remember beyond a conversation."],
	tool_output: ["Tool results", "How much of the window they may take."],
	store: ["Store", "What is kept on this computer, and for how long."],
	mcp_servers: ["MCP servers", ""],
	server: ["Server", "Where elbowroom listens and whom it lets in."],
};

const HINTS = {
	compaction: {
		pruning_agent: ["Pruning agent", "It decides what stays and writes the summary. Usually the agent that answers the chat: its model is loaded already and knows the chat. A smaller one is faster, if both fit in memory.", { options: "pruners" }],
		threshold_ratio: ["Compact from", "So full may the window be. At the red mark, 90 %, an answer is stopped. Earlier: shorter waits, more often. Later: more stays word for word.", { widget: "mark" }],
		model: ["Model for summaries", "", { widget: "model", options: "models", none: "The pruning agent’s own", rare: true }],
		notices: ["Notices in the chat", "How the chat program shows that a compaction runs."],
		chat_command: ["/compact in the chat", "As a whole message it compacts. What follows it says what to keep."],
		retain_last_turns: ["Turns kept word for word", "Empty: as many as fit."],
		enabled: ["Compact conversations", "Off: what no longer fits gets an error."],
		auto: ["Compact automatically", "Off: only when a program asks for it."],
		background: ["Compact in the background", "After an answer, while you read it, so that the next one begins at once."],
		max_restarts: ["Most continuations of one answer", "How often an answer that was stopped goes on by itself.", { rare: true }],
		max_pruning_seconds: ["Longest wait for the pruning agent", "0: no limit.", { unit: "seconds", rare: true }],
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
		provider: ["Provider", "The server that runs the model.", { options: "providers", rare: true }],
		model: ["Model", "", { widget: "model", options: "models" }],
		tools: ["Tools", "", { widget: "choices", options: "tools", vault: true }],
		agent_tools: ["Agents it can ask", "", { widget: "choices", options: "otherAgents" }],
		mcp: ["MCP servers", "", { widget: "choices", options: "mcp", more: "Single tools, as server/tool, one a line" }],
		max_turns: ["Most model calls per request", "", { rare: true }],
		client_tools: ["Tools of the chat program", "What becomes of the tools that it sends along. Short descriptions save room."],
		handoffs: ["Agents it can hand over to", "", { widget: "choices", options: "otherAgents", rare: true }],
		tool_timeout: ["Longest time for a tool", "", { unit: "seconds", rare: true }],
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
		task_history: ["What titles are made from", "", { rare: true }],
		side_requests: ["Know side requests of coding agents", "Titles and summaries wait, and are not kept.", { rare: true }],
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
		max_tokens: ["Most room for memories", "In each request.", { unit: "tokens" }],
		flush: ["Save what matters before a compaction"],
		flush_threshold: ["Begin before the mark by", "", { unit: "tokens", rare: true }],
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
		max_message_bytes: ["Longest result", "Less where the window has less room.", { unit: "bytes" }],
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
	reused: "already compacted in another chat with the same beginning", "last messages": "only the last messages kept",
	auto: "Automatic: a status line, for Obsidian lines of text", event: "A status line", content: "Lines of text in the answer", comment: "Comments, which no program shows", off: "None",
	ends: "The first and the last exchange", whole: "All that fits",
	"client_tools.auto": "Short where the window is small", pass: "Unchanged", slim: "With short descriptions", drop: "Left out",
	lmstudio: "LM Studio", ollama: "Ollama", openai: "OpenAI-compatible",
};
