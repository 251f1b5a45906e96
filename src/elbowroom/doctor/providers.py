"""Checks of the providers: what answers at their addresses, which models are loaded, and with which windows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from elbowroom.doctor.subject import Answer, Finding, Subject, fetch, in_thread, names
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio import find_home
from elbowroom.settings.doubts import is_loopback
from elbowroom.settings.fields import without_secrets
from elbowroom.settings.model import ProviderSettings

START: Final = "Start its server: in LM Studio on the Developer page, or with `lms server start`."
PORT_FILE: Final = Path(".internal") / "http-server.json"
UNUSABLE: Final = "Start it, or correct base_url and api_key of this provider."
MOST_SKEW_SECONDS: Final = 300.0
NOTHING: Final = Answer()
MODELS: Final = "models"
WINDOWS: Final = "windows"
SMALL_WINDOW: Final = 8192
"""Tokens; in a smaller window, a few tools and an answer leave hardly any room for a conversation."""
OVERFLOW: Final = "overflow"
SLOTS: Final = "slots"
ROLLING: Final = "rollingWindow"
POLICIES: Final = {"truncateMiddle": "loses its middle", "stopAtLimit": "is refused"}


@dataclass(frozen=True, slots=True)
class Visit:
    """The answers of one address to requests that tell servers apart; `has_key` tells whether a key was sent."""

    url: str
    has_key: bool
    greeting: Answer
    models: Answer = NOTHING
    older_models: Answer = NOTHING
    health: Answer = NOTHING
    front: Answer = NOTHING

    @property
    def is_lmstudio(self) -> bool:
        """Tell whether LM Studio answers."""
        lists = isinstance(self.models.table.get("models"), list) or _is_v0(self.older_models)
        return self.greeting.table.get("lmstudio") is True or lists


async def check_providers(subject: Subject) -> list[Finding]:
    """Return what is wrong with each provider's address."""
    if not subject.providers:
        remedy = "Add a table [[providers]] with id, kind and base_url; docs/settings.md has examples."
        return [Finding("fail", "provider", "No provider is configured.", str(subject.loaded.path), remedy)]
    findings = []
    for provider in subject.machines():
        settings = subject.provider_settings(provider.id)
        if settings.kind == "lmstudio":
            findings += await _check_lmstudio(subject, provider, settings)
        else:
            what = f"It answers at {without_secrets(settings.base_url)}"
            findings.append(await _check_listing(subject, provider, settings, what))
    return findings


async def _check_lmstudio(subject: Subject, provider: Provider, settings: ProviderSettings) -> list[Finding]:
    visit = await visited(subject, settings)
    elsewhere = ""
    if not visit.is_lmstudio and is_loopback(urlsplit(settings.base_url).hostname or ""):
        elsewhere = await _find_lmstudio(subject, settings)
    if problem := judge_lmstudio(visit, elsewhere):
        return [replace(problem, check=provider.id, where=_where(settings))]
    listing = await _check_listing(subject, provider, settings, f"LM Studio answers at {without_secrets(visit.url)}")
    return [
        listing,
        *(judge_clock(visit.greeting.date, subject.clock(), provider.id) if listing.severity == "ok" else []),
    ]


async def _check_listing(subject: Subject, provider: Provider, settings: ProviderSettings, what: str) -> Finding:
    """Return whether the provider lists its models; `what` begins the sentence that says so."""
    models = await subject.models(provider)
    if isinstance(models, ElbowroomError):
        return Finding("fail", provider.id, models.message, _where(settings), UNUSABLE)
    count = "1 model" if len(models) == 1 else f"{len(models)} models"
    return Finding("ok", provider.id, f"{what} with {count}.")


async def visited(subject: Subject, settings: ProviderSettings) -> Visit:
    """Ask the address what it takes to identify the server, and no more."""
    root = settings.base_url.removesuffix("/v1")
    headers = _authorization(subject, settings)
    greeting = await fetch(subject.http, f"{root}/lmstudio-greeting")
    visit = Visit(root, bool(headers), greeting)
    if greeting.trouble:
        return visit
    models = await fetch(subject.http, f"{root}/api/v1/models", headers)
    visit = replace(visit, models=models)
    if isinstance(models.table.get("models"), list) or models.status in (401, 403):
        return visit
    return replace(
        visit,
        older_models=await fetch(subject.http, f"{root}/api/v0/models", headers),
        health=await fetch(subject.http, f"{root}/health"),
        front=await fetch(subject.http, root),
    )


def _authorization(subject: Subject, settings: ProviderSettings) -> dict[str, str]:
    key = settings.api_key.reveal(subject.loaded.folder, subject.environ) if settings.api_key else None
    return {"Authorization": f"Bearer {key}"} if key else {}


def judge_lmstudio(visit: Visit, elsewhere: str = "") -> Finding | None:
    """Return what is wrong with the server at LM Studio's address, None if nothing is.

    `elsewhere` is a sentence that tells where LM Studio was found instead.
    """
    if visit.greeting.trouble:
        return _no_answer(visit, elsewhere)
    if visit.models.status in (401, 403):
        if visit.has_key:
            what = "LM Studio refuses the API token that elbowroom sends."
            remedy = "Make a new token on LM Studio's Developer page, and put it where api_key of this provider names."
        else:
            what = "LM Studio asks for an API token, and elbowroom has none."
            remedy = (
                "Make one on LM Studio's Developer page and set it before the start: "
                "export LM_API_TOKEN=<token> ; or switch its authentication off."
            )
        return Finding("fail", "", what, "", remedy)
    if not visit.is_lmstudio:
        return _other_server(visit, elsewhere)
    if isinstance(visit.models.table.get("models"), list):
        return None
    if _is_v0(visit.older_models):
        what = "This LM Studio is older than 0.4.0: duplicates of models and their shared windows cannot be seen."
        return Finding("warn", "", what, "", "Update LM Studio.")
    what = "LM Studio does not tell the windows of its models: it answers neither /api/v1/models nor /api/v0/models."
    return Finding("fail", "", what, "", "Update LM Studio to 0.3.6 or later.")


def judge_clock(date: str, now: float, provider: str) -> list[Finding]:
    """Compare a Date header with this machine's clock, in Unix seconds."""
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return []
    if abs(ahead := now - theirs) < MOST_SKEW_SECONDS:
        return []
    what = (
        f"This machine's clock is {abs(ahead) / 60:.0f} minutes {'ahead of' if ahead > 0 else 'behind'} {provider}'s."
    )
    remedy = "Set the clock of one of them right, for example by switching on network time."
    return [Finding("warn", "clock", what, "", remedy)]


def _no_answer(visit: Visit, elsewhere: str) -> Finding:
    match visit.greeting.trouble:
        case "unknown host":
            what, remedy = "There is no machine of this name.", "Correct base_url."
        case "bad address":
            what, remedy = "base_url is not an address.", "Write it as http://127.0.0.1:1234."
        case "silent" if is_loopback(urlsplit(visit.url).hostname or ""):
            what = "Something listens there and does not answer: LM Studio hangs, or is too busy."
            remedy = "Look at LM Studio's log, and restart it where it goes on."
        case "silent":
            what = "Nothing answers in time: a firewall may be in the way, or the machine is off."
            remedy = "Correct base_url, or allow the port on that machine; LM Studio has to serve on the local network."
        case "no http":
            what = "What answers does not speak HTTP: it is another program, or its address begins with https."
            remedy = "Correct base_url."
        case _:
            what, remedy = "Nobody listens there: LM Studio's server is off, or on another port.", START
    return Finding("fail", "", what, "", elsewhere or remedy)


def _other_server(visit: Visit, elsewhere: str) -> Finding:
    if visit.health.table.get("status") == "ok" and isinstance(visit.health.table.get("providers"), list):
        what, remedy = "base_url leads to an elbowroom, not to LM Studio.", "Set it to LM Studio's own address."
    elif "ollama is running" in visit.front.text[:200].lower():
        what, remedy = "It is Ollama that answers there.", "Set kind = 'ollama' for this provider."
    elif "unexpected endpoint" in visit.models.text[:300].lower():
        what = (
            "What answers there says 'Unexpected endpoint' to every question, with status 200: it looks alive, and "
            "offers no list of models."
        )
        remedy = f"If it is LM Studio, update it and restart its server; else correct base_url. {START}"
    elif visit.models.status == 404 and "status" in visit.health.table:
        what = "A server that is not LM Studio answers there; it may be llama.cpp's."
        remedy = "Set kind = 'openai' for this provider, or correct base_url."
    elif visit.greeting.status == 404 and visit.models.status == 404:
        what = "What answers there is not LM Studio, or it is LM Studio with its server switched off."
        remedy = f"{START} If it is another server, set kind = 'openai'."
    else:
        what = f"What answers there is not LM Studio (status {visit.models.status})."
        remedy = "Correct base_url, or set kind = 'openai' if it is another server that speaks OpenAI's API."
    return Finding("fail", "", what, "", f"{elsewhere} {remedy}".strip() if elsewhere else remedy)


async def _find_lmstudio(subject: Subject, settings: ProviderSettings) -> str:
    """Return a sentence about where LM Studio is on this machine, empty if it is not found."""
    own = urlsplit(settings.base_url).port
    published = await in_thread(lambda: published_port(settings.home))
    for port in dict.fromkeys([*([published] if published else []), *subject.other_ports]):
        answer = await fetch(subject.http, f"http://127.0.0.1:{port}/lmstudio-greeting", seconds=1.0)
        if port != own and answer.table.get("lmstudio") is True:
            return f"LM Studio's server is at port {port}: set base_url = 'http://127.0.0.1:{port}'."
    for port in subject.internal_ports:
        answer = await fetch(subject.http, f"http://127.0.0.1:{port}/lms-status", seconds=1.0)
        if answer.status == 200 and answer.table and port != own:
            return f"LM Studio is open, but its server is switched off. {START}"
    return ""


def published_port(home: str) -> int | None:
    """Return the port in LM Studio's own file about its server, None if there is none."""
    folder = find_home(home, Path.home())
    try:
        written = json.loads((folder / PORT_FILE).read_text(encoding="utf-8")) if folder else None
    except (OSError, ValueError, RecursionError):
        return None
    port = written.get("port") if isinstance(written, dict) else None
    return port if isinstance(port, int) and 0 < port < 65536 else None


def _is_v0(answer: Answer) -> bool:
    rows = answer.table.get("data")
    return isinstance(rows, list) and all(isinstance(row, dict) and "compatibility_type" in row for row in rows)


def _where(settings: ProviderSettings) -> str:
    return f"providers: {settings.id}: base_url = {without_secrets(settings.base_url)!r}"


async def check_models(subject: Subject) -> list[Finding]:
    """Return what is wrong with the models of each provider that answers."""
    findings = []
    for provider in subject.machines():
        models = await subject.models(provider)
        if isinstance(models, ElbowroomError):
            continue  # check_providers reports it
        settings = subject.provider_settings(provider.id)
        chatting = [info for info in models if info.kind != "embedding"]
        if settings.kind == "lmstudio":
            findings += judge_loading(provider.id, chatting, await _listed_names(subject, settings))
        if provider.manages_context:
            findings += [found for info in chatting for found in judge_window(info, provider.id, settings.kind)]
    loaded = await subject.loaded_models()
    if not findings and loaded:
        windows = names([f"{info.id} ({info.loaded_context:,} tokens)" for _, info in loaded])
        findings = [Finding("ok", WINDOWS, f"Loaded: {windows}.")]
    for provider, info in loaded:
        if policy := await provider.overflow_policy(info.id):
            findings.append(judge_policy(info, policy))
        if provider.slot_files is not None and info.slots is not None:
            findings.append(judge_slots(info, info.slots, can_save=await provider.slot_files.can_save(info.id)))
    return findings


async def _listed_names(subject: Subject, settings: ProviderSettings) -> list[str] | None:
    """Return the models that LM Studio's `/v1/models` lists: all if they load just in time, else the loaded ones."""
    address = f"{settings.base_url.removesuffix('/v1')}/v1/models"
    answer = await fetch(subject.http, address, _authorization(subject, settings))
    rows: Any = answer.table.get("data")
    if answer.status != 200 or not isinstance(rows, list):
        return None
    return [str(row.get("id")) for row in rows if isinstance(row, dict)]


def judge_loading(provider: str, models: Sequence[ModelInfo], listed: Sequence[str] | None) -> list[Finding]:
    """Judge whether a model can chat; `listed` are the names that LM Studio offers to clients."""
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


def judge_window(info: ModelInfo, provider: str, kind: str) -> list[Finding]:
    """Judge the window of a loaded model, and the number of its instances."""
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


def judge_policy(info: ModelInfo, policy: str) -> Finding:
    """Judge the engine's policy for prompts that are too long, which elbowroom never sends knowingly."""
    if policy == ROLLING:
        what = (
            "LM Studio's context overflow policy for it is rollingWindow: of a prompt that does not fit, the "
            "instructions are lost first."
        )
        remedy = "Set the policy to 'stop at limit' in the model's settings in LM Studio, so that an overflow is told."
        return Finding("warn", OVERFLOW, what, info.id, remedy)
    happens = POLICIES.get(policy, "meets a policy that is not known here")
    return Finding("ok", OVERFLOW, f"{info.id}: {policy}: a prompt that does not fit {happens}; elbowroom sends none.")


def judge_slots(info: ModelInfo, slots: int, *, can_save: bool) -> Finding:
    """Tell of how many conversations an engine keeps what it has read, and what can be done for more."""
    many = "one conversation" if slots == 1 else f"{slots} conversations"
    what = f"{info.id}: its engine has slots for {many}"
    if can_save:
        return Finding("ok", SLOTS, f"{what}; others are saved and restored unless it keeps them by itself.")
    remedy = (
        "Where others are read anew whenever they go on, start llama-server with --slot-save-path and a folder, or "
        "with a larger --cache-ram."
    )
    return Finding("ok", SLOTS, f"{what}; it cannot save others to files.", info.id, remedy)


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
