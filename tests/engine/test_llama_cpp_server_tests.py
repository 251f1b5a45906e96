"""llama.cpp's own tests of its server, through elbowroom: what passes directly at the engine passes through it too.

Chats, tools, streaming, errors and bare completions of those tests run with the tiny model.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from llama_cpp_archive import VERSION, ArchiveUnavailableError, llama_cpp_archive, unpack_server_tests
from serving import serve, settings_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SUPPORT = Path(__file__).parent.with_name("support")
FILES = ("test_chat_completion.py", "test_tool_call.py", "test_stream.py", "test_completion.py", "test_ctx_shift.py")
Outcomes = dict[str, dict[str, Any]]
THEIRS = (
    "test_chat_completion",
    "test_chat_completion_cached_tokens",
    "test_chat_completion_stream",
    "test_chat_completion_with_openai_library",
    "test_chat_template",
    "test_chat_template_assistant_prefill",
    "test_chat_template_continue_final_message_vllm_compat",
    "test_chat_template_continue_final_message_mutual_exclusion",
    "test_completion_with_response_format",
    "test_completion_with_json_schema",
    "test_completion_with_grammar",
    "test_completion_with_invalid_grammar",
    "test_invalid_chat_completion_req",
    "test_chat_completion_with_timings_per_token",
    "test_logprobs",
    "test_logprobs_stream",
    "test_logit_bias",
    "test_context_size_exceeded",
    "test_context_size_exceeded_stream",
    "test_return_progress",
    "test_chat_completions_multiple_choices",
    "test_chat_completions_token_count",
    "test_verbose_debug",
    "test_completion_without_tool_call_fast",
    "test_stream_resume_and_stop_with_slashed_model_name",
    "test_stream_stop_during_model_load",
    "test_stream_resumes_after_reload_during_model_load",
    "test_completion_with_openai_library",
    "test_completion_stream_with_openai_library",
    "test_ctx_shift_disabled_stream",
)
"""Their tests that ask what elbowroom serves; the others of these files ask llama.cpp's own routes."""
OPENAI_ERROR = "elbowroom tells of a context that is too long with the type and the code of OpenAI"
DIFFERENT = {"test_context_size_exceeded": OPENAI_ERROR, "test_context_size_exceeded_stream": OPENAI_ERROR}
"""Their tests that pass directly and not through elbowroom, with the reason."""
ROUTER = "needs a server that downloads and loads several models"
UNFIT = {
    "test_chat_completion_cached_tokens": "names the token counts of a model that is downloaded",
    "test_chat_template": "names the first token of a model that is downloaded",
    "test_completion_with_response_format[response_format5-0-None]": "the installed llama.cpp takes this schema",
    "test_return_progress[64-4-False]": "names how many batches the prompt of a downloaded model takes",
    "test_stream_resume_and_stop_with_slashed_model_name": ROUTER,
    "test_stream_stop_during_model_load": ROUTER,
    "test_stream_resumes_after_reload_during_model_load": ROUTER,
}
"""Their tests that do not pass directly at the engine of our tests, with the reason."""


@pytest.fixture(scope="module")
def outcomes(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run their tests directly and through elbowroom; return how each has ended on both ways."""
    cache = platformdirs.user_cache_path("elbowroom-tests", appauthor=False)
    try:
        archive = llama_cpp_archive(cache)
    except ArchiveUnavailableError as error:
        pytest.skip(f"the source archive of llama-cpp-python {VERSION} cannot be had: {error}")
    folder = tmp_path_factory.mktemp("llama-cpp")
    tests = unpack_server_tests(archive, folder)
    (tests / "conftest.py").write_bytes((SUPPORT / "llama_cpp_conftest.py").read_bytes())
    (tests / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    serial\n", encoding="utf-8")
    return asyncio.run(both_ways(tests, tiny_model, folder))


async def both_ways(tests: Path, model: Path, folder: Path) -> Outcomes:
    """Run the tests beside an elbowroom that passes on to the port at which they start their engines."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = settings_for(f"http://127.0.0.1:{port}/v1", kind="openai").replace('id = "openai"', 'id = "engine"')
    async with serve(folder, settings) as served:
        told = {
            "program": str(SUPPORT / "llama_server_process.py"),
            "model": str(model),
            "port": port,
            "folder": str(folder),
            "elbowroom": served.port,
            "report": str(folder / "report.json"),
        }
        files = [f"unit/{name}" for name in FILES]
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        own = {"LLAMA_CPP_TESTS": json.dumps(told), "PYTHONPATH": str(tests), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            *files,
            cwd=tests,
            env=os.environ | own,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    report = folder / "report.json"
    assert report.is_file(), said.decode()[-3000:]
    outcomes: Outcomes = json.loads(report.read_text(encoding="utf-8"))
    return outcomes


def name_of(case: str) -> str:
    """Return the name of the test that a case belongs to."""
    return case.split("::")[1].partition("[")[0]


def test_none_is_left_out(outcomes: Outcomes) -> None:
    """Whatever asks elbowroom is among the names."""
    asking = {name_of(case) for case, ways in outcomes.items() if ways["through"]["asked"]}
    assert asking <= {*THEIRS}


@pytest.mark.parametrize("name", THEIRS)
def test_what_passes_directly_passes_through(outcomes: Outcomes, name: str) -> None:
    """Each case of one of their tests ends alike on both ways, with the same words and counts."""
    cases = {
        case.split("::")[1]: ways
        for case, ways in outcomes.items()
        if name_of(case) == name and (ways["through"]["asked"] or ways["through"]["outcome"] == "skipped")
    }
    fit = {case: ways for case, ways in cases.items() if ways["direct"]["outcome"] == "passed"}
    assert cases
    for case in cases.keys() - fit.keys():
        assert UNFIT.get(case) or UNFIT.get(name), (case, cases[case]["direct"]["why"])
    if not fit:
        pytest.skip(UNFIT[name])
    broken = {case: ways["through"]["why"] for case, ways in fit.items() if ways["through"]["outcome"] != "passed"}
    if name in DIFFERENT:
        assert broken, f"{name} passes by now: take it off the list"
        pytest.skip(DIFFERENT[name])
    assert not broken
