"""Checks of the models: one is loaded or can be, with a window that is known and large enough, and once only."""

from collections.abc import Sequence
from typing import Any, Final

from elbowroom.doctor.fetch import fetch
from elbowroom.doctor.finding import Finding, names
from elbowroom.doctor.subject import Subject
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo
from elbowroom.settings.model import ProviderSettings

MODELS: Final = "models"
WINDOWS: Final = "windows"
SMALL_WINDOW: Final = 8192
"""Tokens: below it a few tools and an answer leave hardly room for a conversation."""
OVERFLOW: Final = "overflow"
ROLLING: Final = "rollingWindow"
POLICIES: Final = {"truncateMiddle": "loses its middle", "stopAtLimit": "is refused"}


async def check_models(subject: Subject) -> list[Finding]:
    """Return what is wrong with the models of each provider that answers."""
    findings = []
    for provider in subject.providers.values():
        models = await subject.models(provider)
        if isinstance(models, ElbowroomError):
            continue  # said with its address
        settings = subject.provider_settings(provider.id)
        chatting = [info for info in models if info.kind != "embedding"]
        if settings.kind == "lmstudio":
            findings += of_loading(provider.id, chatting, await _listed_names(subject, settings))
        if provider.manages_context:
            findings += [found for info in chatting for found in of_window(info, provider.id, settings.kind)]
    loaded = await subject.loaded_models()
    if not findings and loaded:
        windows = names([f"{info.id} ({info.loaded_context:,} tokens)" for _, info in loaded])
        findings = [Finding("ok", WINDOWS, f"Loaded: {windows}.")]
    for provider, info in loaded:
        if policy := await provider.overflow_policy(info.id):
            findings.append(of_policy(info, policy))
    return findings


async def _listed_names(subject: Subject, settings: ProviderSettings) -> list[str] | None:
    """Return what `/v1/models` of an LM Studio lists: all models where they load just in time, else the loaded ones."""
    key = settings.api_key.reveal(subject.loaded.folder, subject.environ) if settings.api_key else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = await fetch(subject.http, f"{settings.base_url.removesuffix('/v1')}/v1/models", headers)
    rows: Any = answer.table.get("data")
    if answer.status != 200 or not isinstance(rows, list):
        return None
    return [str(row.get("id")) for row in rows if isinstance(row, dict)]


def of_loading(provider: str, models: Sequence[ModelInfo], listed: Sequence[str] | None) -> list[Finding]:
    """Judge whether something can chat: `listed` are the names that LM Studio offers to clients."""
    where = f"provider {provider}"
    if not models:
        what = "LM Studio has no model that can chat."
        remedy = "Download one in LM Studio (its Discover page, or `lms get qwen2.5-7b-instruct`)."
        return [Finding("fail", MODELS, what, where, remedy)]
    if any(info.loaded_context for info in models):
        return []
    first = models[0].id
    if listed is not None and not set(listed).intersection(info.id for info in models):
        what = "No model is loaded, and LM Studio does not load one on request: just-in-time loading is off."
        remedy = f"Load one (`lms load {first} --context-length 16384`), or switch just-in-time loading on."
        return [Finding("fail", MODELS, what, where, remedy)]
    what = "No model is loaded; LM Studio loads one at the first request, with its default window (often 4096 tokens)."
    remedy = f"To choose the window, load it beforehand: `lms load {first} --context-length 16384`."
    return [Finding("ok", MODELS, what, where, remedy)]


def of_window(info: ModelInfo, provider: str, kind: str) -> list[Finding]:
    """Judge the window that a model is loaded with, and how often it is loaded."""
    where = f"{provider}/{info.id}"
    findings = []
    if info.loaded_context is None:
        if info.state == "loaded" or (info.state is None and kind == "openai"):
            what = "Its window is not known: the provider does not tell the context length, so elbowroom refuses it."
            remedy = "Set manage_context = false for this provider to pass requests on unchecked."
            if kind == "lmstudio":
                remedy = (
                    f"Unload and load it again (`lms unload {info.id}`, `lms load {info.id}`), or update LM Studio."
                )
            findings.append(Finding("fail", WINDOWS, what, where, remedy))
    elif info.loaded_context < min(SMALL_WINDOW, info.max_context or SMALL_WINDOW):
        wanted = min(16_384, info.max_context or 16_384)
        most = f" of {info.max_context:,} that it can have" if info.max_context else ""
        what = (
            f"It is loaded with a window of only {info.loaded_context:,} tokens{most}. 36 tools of a client alone take "
            "about 6,000, so that chats with tools are refused and others compacted every few turns."
        )
        reload_it = f"`lms unload {info.id}` and `lms load {info.id} --context-length {wanted}`"
        remedy = f"Load it with more: {reload_it}, or set that as its default in LM Studio."
        if kind != "lmstudio":
            remedy = "Start its server with a larger context length."
        findings.append(Finding("warn", WINDOWS, what, where, remedy))
    if len(info.instances or {}) > 1:
        findings.append(_duplicates(info, where))
    return findings


def of_policy(info: ModelInfo, policy: str) -> Finding:
    """Judge what the engine does with a prompt that is too long. elbowroom sends none that it knows to be."""
    if policy == ROLLING:
        what = (
            "LM Studio's context overflow policy for it is rollingWindow: of a prompt that does not fit, the "
            "instructions are lost first."
        )
        remedy = "Set the policy to 'stop at limit' in the model's settings in LM Studio, so that an overflow is told."
        return Finding("warn", OVERFLOW, what, info.id, remedy)
    happens = POLICIES.get(policy, "meets a policy that is not known here")
    return Finding("ok", OVERFLOW, f"{info.id}: {policy}: a prompt that does not fit {happens}; elbowroom sends none.")


def _duplicates(info: ModelInfo, where: str) -> Finding:
    instances = info.instances or {}
    told = ", ".join(f"{name} ({window:,} tokens)" for name, window in instances.items())
    superfluous = [name for name in instances if name != info.id] or list(instances)[1:]
    what = (
        f"It is loaded {len(instances)} times: {told}. Each takes memory of its own, and which of them answers is LM "
        "Studio's choice."
    )
    remedy = "Unload all but one: " + ", ".join(f"`lms unload {name}`" for name in superfluous) + "."
    return Finding("warn", "duplicates", what, where, remedy)
