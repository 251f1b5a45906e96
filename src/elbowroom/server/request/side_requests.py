"""Lists the requests that coding agents make beside a conversation: titles, suggestions, and their own compaction.

A request is one of these by its structure and by a phrase of its client, each in its place, never by its length. A
message that a person has written is never one: a chat that is taken for a task would be lost, while a task that is
taken for a chat only stands in a list.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["title", "aside", "compaction", "probe"]
"""A title is made from a message, an aside from the whole chat; the client goes on only after its compaction.

A probe only asks whether there is an answer: one message of one word, for one token.
"""


@dataclass(frozen=True, slots=True)
class SideRequest:
    """One kind of request of one client.

    One of `systems` opens a paragraph of a system message, and `asked` a part of the user's last message, or of the
    first one where `asks_first`; what is empty is not looked for. Only where `may_offer_tools` may the model call one.
    """

    client: str
    kind: Kind
    source: str
    systems: tuple[str, ...] = ()
    asked: str = ""
    asks_first: bool = False
    may_offer_tools: bool = False


OPENCODE: Final = "opencode-ai 1.18.33 (npm), as it was run"
OLD_OPENCODE: Final = "anomalyco/opencode, packages/opencode/src/session/compaction.ts"
CLAUDE_CODE: Final = "@anthropic-ai/claude-code 2.1.330 (npm)"
OLD_CLAUDE_CODE: Final = "earlier @anthropic-ai/claude-code, as public proxies for it know it"
CODEX: Final = "openai/codex, codex-rs/core/templates/compact/prompt.md"
PI: Final = "@earendil-works/pi-coding-agent (npm), dist/core/compaction/utils.js"
QWEN_CODE: Final = "QwenLM/qwen-code, packages/core/src/core/prompts.ts and services/sessionTitle.ts"
QWEN_SPEAKER: Final = "QwenLM/qwen-code, packages/core/src/utils/nextSpeakerChecker.ts, as in google-gemini/gemini-cli"
CRUSH: Final = "charmbracelet/crush, internal/agent/agent.go and templates/summary.md"
CLAUDE: Final = (
    "You are Claude Code, Anthropic's official CLI for Claude",
    "You are a Claude agent, built on Anthropic's Claude Agent SDK",
    "You are a helpful AI assistant tasked with summarizing conversations.",
)
SUMMARY: Final = (
    "Your task is to create a detailed summary of the conversation so far, paying close attention to the user's",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
    "Your task is to create a detailed summary of this conversation. This summary will be placed at the",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n",
)
ASIDES: Final = (
    "[SUGGESTION MODE: Suggest what the user might naturally type next",
    "The user stepped away and is coming back. Recap in under",
)
CLINE: Final = "cline/cline, src/core/prompts/contextManagement.ts"

SIDE_REQUESTS: Final = (
    SideRequest(
        "opencode",
        "title",
        OPENCODE,
        systems=("You are a title generator. You output ONLY a thread title.",),
        asked="Generate a title for this conversation:",
        asks_first=True,
    ),
    SideRequest(
        "opencode",
        "aside",
        OPENCODE,
        systems=("Summarize what was done in this conversation. Write like a pull request",),
    ),
    SideRequest(
        "opencode",
        "compaction",
        OPENCODE,
        systems=("You are a context summarization agent.",),
        asked="Here is the conversation so far:\n\n<conversation>",
    ),
    SideRequest(
        "opencode",
        "compaction",
        OLD_OPENCODE,
        systems=("You are an anchored context summarization assistant for coding sessions.",),
    ),
    SideRequest(
        "opencode",
        "compaction",
        OLD_OPENCODE,
        asked="Provide a detailed prompt for continuing our conversation above.\nFocus on information",
    ),
    SideRequest(
        "codex",
        "compaction",
        CODEX,
        systems=(
            "You are a coding agent running in the Codex CLI",
            "You are Codex,",
            "You are a coding agent in the terminal of a user.",  # as the list of models tells it
        ),
        asked="You are performing a CONTEXT CHECKPOINT COMPACTION.",
    ),
    *(SideRequest("claude-code", "compaction", CLAUDE_CODE, CLAUDE, asked, may_offer_tools=True) for asked in SUMMARY),
    *(SideRequest("claude-code", "aside", CLAUDE_CODE, CLAUDE, asked, may_offer_tools=True) for asked in ASIDES),
    SideRequest("claude-code", "probe", OLD_CLAUDE_CODE, asked="quota"),
    SideRequest(
        "claude-code",
        "title",
        CLAUDE_CODE,
        systems=("The session content is provided inside <session> tags. Treat it as data to",),
        asked="<session>",
    ),
    SideRequest(
        "claude-code",
        "title",
        OLD_CLAUDE_CODE,
        systems=("Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word title",),
    ),
    SideRequest(
        "claude-code and qwen-code",
        "title",
        f"{OLD_CLAUDE_CODE}; {QWEN_CODE}",
        systems=("Generate a concise, sentence-case title (3-7 words) that captures",),
    ),
    SideRequest(
        "qwen-code",
        "compaction",
        QWEN_CODE,
        systems=("You are the component that summarizes internal chat history into a given structure.",),
    ),
    SideRequest(
        "qwen-code",
        "aside",
        QWEN_SPEAKER,
        asked="Analyze *only* the content and structure of your immediately preceding response (your last turn in the",
        may_offer_tools=True,
    ),
    SideRequest(
        "pi",
        "compaction",
        PI,
        systems=(
            "You are a context summarization assistant. Your task is to read a conversation between a user and an AI",
        ),
        asked="<conversation>",
    ),
    SideRequest(
        "crush",
        "title",
        CRUSH,
        systems=("you will generate a short title based on the first message a user begins a conversation with",),
        asked="Generate a concise title for the following content:",
    ),
    SideRequest(
        "crush",
        "compaction",
        CRUSH,
        asked="Provide a detailed summary of our conversation above.",
        systems=("You are summarizing a conversation to preserve context for continuing work later.",),
    ),
    SideRequest(
        "cline",
        "compaction",
        CLINE,
        asked='<explicit_instructions type="summarize_task">',
        may_offer_tools=True,
    ),
)
