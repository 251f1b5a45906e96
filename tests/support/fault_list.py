"""The faults of the matrix in docs/develop/reliability.md, the states that a request is in then, and the threats.

Tests promise what becomes of them, with `@pytest.mark.fault(faults, states, outcome)` and `@pytest.mark.threat(threats,
outcome)`. A fault that cannot come in a state, or that makes no difference there, has its reason here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

STATES: Final = {
    "first": "before the first word",
    "streaming": "streaming",
    "tool": "tool",
    "compaction": "compaction",
    "flush": "flush",
    "stop": "stop",
}
LATER: Final = ("streaming", "tool", "compaction", "flush", "stop")

ONE_READER: Final = "One reader takes every answer of an engine apart, whatever was asked for (`providers/stream.py`)."
BODY: Final = "A body is judged before anything else begins."
NO_PERSON: Final = "What is said there is not for the client."
ONE_WRITER: Final = (
    "One task writes for all states what they have noted; the row *database held* fails it in each of them."
)
PLAN: Final = "It is recovered from as from an overflow that is refused, or is an empty answer: see these."
NO_HISTORY: Final = "It is part of what the client sends, which is judged before the first word."
NO_TOOLS: Final = "No tool runs there: a call is an unusable answer, see *empty answer*."
ANY_TIME: Final = "It does not depend on what a request is doing."


@dataclass(frozen=True, slots=True)
class Fault:
    """A row: its name, and for states in which it has no cell the reason; several states stand in one key."""

    name: str
    reasons: Mapping[str, str] = field(default_factory=dict)

    def reason(self, state: str) -> str | None:
        """Return why there is no cell for a state."""
        return next((reason for states, reason in self.reasons.items() if state in states.split()), None)


FAULTS: Final[dict[str, tuple[Fault, ...]]] = {
    "Engine": (
        Fault(
            "connection refused",
            {
                "streaming": "A stream that runs has its connection: see *cut stream*.",
                "flush stop": "The engine has just answered, or the answer that follows is refused as well.",
            },
        ),
        Fault("silence before the headers", {"streaming": "The headers have come by then."}),
        Fault("silence in mid-stream", {"first": "Nothing has come by then: see *silence before the headers*."}),
        Fault("cut stream"),
        Fault("characters split over reads", {"tool compaction flush stop": ONE_READER, "first": ONE_READER}),
        Fault("odd event stream", {"first tool compaction flush stop": ONE_READER}),
        Fault("broken event", {"first": "Bytes before the first word are read as those after it."}),
        Fault("error in the stream"),
        Fault("overflow refused"),
        Fault("overflow as an empty stream", {"streaming": "It is empty.", "tool compaction flush stop": PLAN}),
        Fault("empty answer", {"streaming": "It is empty."}),
        Fault("busy engine", {"streaming": "It is a status, which comes before all words."}),
        Fault("wrong usage", {"first": "Usage comes with the end of an answer.", "compaction flush stop": ONE_READER}),
        Fault(
            "bad arguments of a tool",
            {
                "first streaming": "They are read when the call is whole.",
                "compaction": NO_TOOLS,
                "stop": "A call in the last words counts for nothing: see *odd tool calls*.",
            },
        ),
        Fault(
            "odd tool calls",
            {"first": "They come in the answer.", "flush": "See *bad arguments of a tool*."},
        ),
        Fault(
            "endless generation",
            {
                "first": "It has begun to answer.",
                "tool": "The step after a tool is a stream as any other.",
                "flush": "It has the limit of *silence in mid-stream*.",
            },
        ),
        Fault("model lost"),
        Fault(
            "window changed",
            {
                "streaming": "An engine does not change the window of an answer that it gives.",
                "stop": "Last words that do not fit are refused: see *overflow refused*.",
            },
        ),
        Fault("page instead of an answer", {"streaming": "It takes the place of the whole answer."}),
    ),
    "Storage": (
        Fault("disk full", {"first tool compaction flush stop": ONE_WRITER}),
        Fault("database held"),
        Fault("database damaged"),
        Fault("database file replaced", {"tool compaction flush stop": ONE_WRITER}),
        Fault(
            "back-up under the log of another file",
            {"streaming tool compaction flush stop": "It is there when elbowroom starts."},
        ),
        Fault(
            "kill -9",
            {
                "flush": "A flush leaves nothing that is half done: a memory is one row, written or not.",
                "stop": "What was said is written before a stop as it is while streaming.",
            },
        ),
        Fault("two processes on one folder", {"streaming tool compaction flush stop": "The second does not start."}),
        Fault(
            "power loss",
            {"first tool compaction flush stop": "A commit goes to the disk in every state. No test pulls a plug."},
        ),
        Fault("read-only folder", {"tool compaction flush stop": ONE_WRITER}),
        Fault("PostgreSQL gone", {"tool compaction flush stop": ONE_WRITER}),
    ),
    "Clients": (
        Fault("client leaves"),
        Fault(
            "slow reader",
            {
                "first": "There is nothing to read yet.",
                "tool flush": "Statuses take the way of the compaction's.",
                "stop": "The last words are a stream as any other.",
            },
        ),
        Fault("many idle connections", {" ".join(LATER): "An idle connection has no request."}),
        Fault("malformed body", {" ".join(LATER): BODY}),
        Fault("two clients at once"),
        Fault("proxy in between", {"first tool compaction flush stop": "All frames go through one stream."}),
    ),
    "Words lost": (
        Fault("store opens late", {"tool compaction flush stop": "The first words wait for it; it is open by then."}),
        Fault("kill -9 under load", {"first tool compaction flush stop": ONE_WRITER}),
        Fault("clock set", {"streaming tool compaction flush stop": ANY_TIME}),
        Fault("question while the store opens", {"streaming tool compaction flush": ANY_TIME}),
    ),
    "Somebody waits for others": (
        Fault("folder that hangs", {"streaming compaction flush stop tool": ANY_TIME}),
        Fault("search beside chats", {"streaming tool compaction flush stop": "A turn's questions come at its begin."}),
        Fault("huge body", {" ".join(LATER): BODY}),
        Fault("endless pruning", {"first streaming tool flush stop": "It is about compactions."}),
        Fault("huge result or frame", {"first": "Nothing has come yet.", "compaction flush stop": ONE_READER}),
    ),
    "Wrong answers": (
        Fault(
            "arguments nested without end",
            {"first streaming": "They are read when the call is whole.", "compaction flush stop": NO_TOOLS},
        ),
        Fault(
            "arguments before the name",
            {"first": "They come in the answer.", "compaction flush stop": NO_TOOLS},
        ),
        Fault("Retry-After of years", {"streaming": "It is a header.", "tool compaction flush stop": NO_PERSON}),
        Fault("text after the end", {"first": "There is no end yet.", "tool compaction flush stop": ONE_READER}),
        Fault(
            "run of a million spaces",
            {"streaming tool compaction flush stop": "All texts are counted by the same code."},
        ),
        Fault("result without a call", {"streaming tool compaction flush stop": NO_HISTORY}),
        Fault("history that the template takes", {"streaming tool compaction flush stop": NO_HISTORY}),
    ),
    "Other programs and models": (
        Fault(
            "thoughts under another name", {"first": "It is in the answer.", "tool compaction flush stop": ONE_READER}
        ),
        Fault(
            "fields that nobody knows", {"first": "They are in the answer.", "tool compaction flush stop": NO_PERSON}
        ),
        Fault("window told in another way", {" ".join(LATER): "It is read before the prompt is sent."}),
        Fault("kept response asked as a stream", {"tool compaction flush stop": ANY_TIME, "first": ANY_TIME}),
        Fault("model of an unknown family", {" ".join(LATER): "It is counted before the prompt is sent."}),
    ),
}

THREATS: Final[dict[str, str]] = {
    "DNS rebinding": "A page's own host name leads to this machine.",
    "CSRF": "A foreign page posts what needs no preflight.",
    "foreign origins": "A page with another origin, or one dressed up as ours, asks or reads.",
    "token": "No token, a wrong one, a part of one, or one that is guessed by time.",
    "pairing": "A code is guessed or used again, a token is stolen, or a plugin beside ours uses it.",
    "people": "Somebody reads or changes what is another person's.",
    "open address": "It listens for other machines.",
    "paths out of the vault": "`..`, links, devices, other spellings.",
    "vaults over HTTP": "A request has the plugin written into a folder that it names.",
    "injection by notes and results": "A note, a page or a result speaks to the model.",
    "forged notices, summaries and references": "A text looks like what elbowroom itself writes.",
    "addresses in messages": "An `image_url` or a remote image names an inner address.",
    "body bombs": "Bodies and headers that are too large, packed or dripping.",
    "odd JSON": "Depth, huge numbers, doubled keys.",
    "slow requests": "Half requests that hold connections.",
    "frames and headers": "Names and texts that look like frames.",
    "scripts in names": "Markup in names of agents, models, tools, files and conversations.",
    "secrets in logs": "Keys and conversations in logs, errors and terminals.",
    "addresses in bodies and redirects": "A body or an upstream sends a request, or a key, elsewhere.",
    "addresses of MCP servers": "A server redirects, or a foreign page names an inner one in the settings.",
    "other people's conversations": "Ids and references of others.",
    "secrets at rest": "Files that others on the machine can read.",
    "patterns": "Regular expressions that never end.",
    "chat templates": "Code in a model's chat template.",
    "tokenizer.json": "A tokenizer that grows a text, never ends, or is damaged.",
    "GGUF headers": "Numbers and lengths that lie.",
}
