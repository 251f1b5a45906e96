"""Loads the OpenAI Agents SDK with its tracing off, which would otherwise upload prompts where a key is set."""

import gc
import os
import threading

TRACING_SWITCH = "OPENAI_AGENTS_DISABLE_TRACING"
_LOADING = threading.Lock()
"""Two threads that import the SDK at once can see halves of its modules, which refer to each other."""


def load_sdk() -> None:
    """Import the SDK; about a second and a half of work for a thread. Nothing is uploaded, now or later.

    Tracing is off in the environment before the import, in the SDK's own switch, and has no processor left.
    """
    with _LOADING:
        os.environ[TRACING_SWITCH] = "1"
        import agents  # importing it is what this function is for

        agents.set_tracing_disabled(True)
        agents.set_trace_processors([])
        # Half of all objects belong to the SDK and live for ever; the collector need not look at them again.
        gc.freeze()
