"""The engine's own process: serves one model until the parent closes standard input, or dies.

Run with one argument, a JSON object that `llama_server.LlamaServer` writes; `more` has parameters by llama.cpp's own
names. The only line on standard output is the address; everything that the engine logs goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import xllamacpp  # type: ignore[import-untyped]


def parameters(settings: dict[str, Any]) -> xllamacpp.CommonParams:
    """Translate the settings; what they leave open is chosen for a quick start on a small machine."""
    chosen = xllamacpp.CommonParams()
    chosen.model.path = settings["model"]
    chosen.model_alias = {settings["model_id"]}
    chosen.hostnames = ["127.0.0.1"]
    chosen.port = 0
    chosen.n_ctx = settings["context_length"]
    chosen.n_parallel = settings["slots"]
    chosen.kv_unified = settings["shared_pool"]
    chosen.use_jinja = settings["jinja"]
    chosen.endpoint_slots = settings["inspection"]
    chosen.endpoint_props = settings["inspection"]
    chosen.endpoint_metrics = settings["inspection"]
    chosen.path_prompts_log_dir = settings["prompt_folder"]
    chosen.cpuparams.n_threads = chosen.cpuparams_batch.n_threads = 1
    chosen.n_threads_http = 64  # each idle kept-alive connection holds one for seconds
    chosen.n_gpu_layers = 0
    chosen.cache_ram_mib = 0
    chosen.ui = chosen.warmup = chosen.fit_params = False
    chosen.offline = True
    chosen.verbosity = 2
    for name, value in settings.get("more", {}).items():
        place, _, last = name.rpartition(".")
        setattr(getattr(chosen, place) if place else chosen, last, value)
    return chosen


def leave_with_parent() -> None:
    """Wait for the end of standard input, which also comes when the parent dies; then leave at once."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Start the engine, tell its address, and serve until the parent goes."""
    answer = os.dup(1)
    os.dup2(2, 1)
    watcher = threading.Thread(target=leave_with_parent, daemon=True)
    watcher.start()
    server = xllamacpp.Server(parameters(json.loads(sys.argv[1])))
    os.write(answer, f"{server.listening_address}\n".encode())
    os.close(answer)
    watcher.join()


if __name__ == "__main__":
    main()
