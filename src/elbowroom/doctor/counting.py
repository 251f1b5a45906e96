"""Checks of counting: how the tokens of each loaded model are counted, and with a probe whether the engine agrees."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from elbowroom.doctor.subject import Finding, Subject, in_thread, names
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider, UsageReport
from elbowroom.settings.fields import expanded
from elbowroom.tokens.count import TokenCount

CHECK: Final = "counting"
MOST_PROBED: Final = 3
PROBE: Final[Sequence[Mapping[str, Any]]] = (
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Which of 3 rivers is the longest, and how long is it in km? Danke! 谢谢"},
)
TOLERATED: Final = 8
"""The tokens that an exact count may be off: an engine may add some, which elbowroom learns at the first request."""
IN_WORDS: Final = {
    "exact": "with the model's own file",
    "engine": "by the engine itself",
    "family": "with the vocabulary of its family",
    "estimate": "by an estimate",
}


async def check_counting(subject: Subject) -> list[Finding]:
    """Return the models whose tokens are not counted exactly, or how all are counted."""
    findings = [
        found for settings in subject.loaded.settings.providers for found in await _check_files(settings.model_files)
    ]
    counted = []
    for provider, info in await subject.loaded_models():
        count = await (await provider.counter(info)).count_chat(PROBE)
        counted.append(f"{info.id} {IN_WORDS[count.method]}")
        findings += judge_method(info, count)
    if subject.probes:
        for provider, info in (await subject.loaded_models())[:MOST_PROBED]:
            findings += await _probe(provider, info)
    if findings or not counted:
        return findings
    told = "engine and count agree" if subject.probes else "`elbowroom doctor --probe` compares it with a short request"
    return [Finding("ok", CHECK, f"Counted: {names(counted)}; {told}.")]


async def _check_files(files: Mapping[str, str]) -> list[Finding]:
    findings = []
    for model, written in files.items():
        path = expanded(written)
        if not await in_thread(path.exists):
            what = f"The file that model_files names for {model!r} is not there."
            remedy = "Correct the path, or remove the line: elbowroom then looks for the file itself."
            findings.append(Finding("warn", CHECK, what, str(Path(path)), remedy))
    return findings


def judge_method(info: ModelInfo, count: TokenCount) -> list[Finding]:
    """Judge how a model's tokens are counted."""
    if count.method in ("exact", "engine"):
        return []
    off = f"{count.error_bound / max(1, count.tokens):.0%}"
    what = (
        f"Its tokens are counted {IN_WORDS[count.method]}, which may be up to {off} off: neither its file nor the "
        "engine can be asked. elbowroom keeps that much more room free."
    )
    remedy = (
        "Name its GGUF file, or its folder with tokenizer.json, in model_files of the provider; for LM Studio on this "
        "machine, name its folder in home."
    )
    return [Finding("warn", CHECK, what, f"{info.provider}/{info.id}", remedy)]


async def _probe(provider: Provider, info: ModelInfo) -> list[Finding]:
    """Ask the model for one token and compare what the engine reports with the count."""
    count = await (await provider.counter(info)).count_chat(PROBE)
    body = {
        "model": info.id,
        "messages": list(PROBE),
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    usage: dict[str, Any] | None = None
    try:
        async for events in provider.stream(body, info):
            usage = next((event.usage for event in events if isinstance(event, UsageReport)), usage)
    except ElbowroomError as error:
        what = f"It did not answer a short request: {error.message}"
        return [
            Finding("fail", CHECK, what, f"{info.provider}/{info.id}", "Load it again, and look at LM Studio's log.")
        ]
    return judge_usage(info, count, usage)


def judge_usage(info: ModelInfo, count: TokenCount, usage: Mapping[str, Any] | None) -> list[Finding]:
    """Compare the engine's report for the probe with the count."""
    where = f"{info.provider}/{info.id}"
    reported = (usage or {}).get("prompt_tokens")
    if not isinstance(reported, int) or isinstance(reported, bool) or reported <= 0:
        what = "The engine does not report how many tokens it has read, so that silent cuts would not be noticed."
        return [Finding("warn", CHECK, what, where, "Update LM Studio or its runtime.")]
    off = reported - count.tokens
    if abs(off) <= max(TOLERATED, count.error_bound):
        return []
    if off < 0 and reported < count.tokens // 2:
        what = (
            f"The engine reports {reported} tokens for a prompt of {count.tokens}: its usage is not true, or it cuts."
        )
        return [Finding("fail", CHECK, what, where, "Update LM Studio or its runtime, and load the model again.")]
    what = (
        f"The engine counts {reported} tokens where elbowroom counts {count.tokens} ({IN_WORDS[count.method]}). It "
        "learns the difference at the first request."
    )
    remedy = "If model_files or home name another file than the one that is loaded, correct that."
    return [Finding("warn", CHECK, what, where, remedy)]
