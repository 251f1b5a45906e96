"""Real chat templates take every normalised history, rendered by the engine and by the templates themselves."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from demands_by_rendering import demands_of
from engine_rendering import demands_of_engine, render_of, rendered
from random_histories import NAME, TOOLS, WORD, some_histories, words_in

from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.templates.normalise import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from llama_server import LlamaServer

    from elbowroom.context.transcript import Message

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BESIDE_TOOLS: Final = {"user_first", "user_before_calls", "user_needed", "no_answer_alone"}
"""What Llama's templates demand only with tools on offer, which they write into the user's first message."""
LLAMA: Final = {*BESIDE_TOOLS, "one_call_a_message", "drops_text_beside_calls"}
MISTRAL: Final = {"roles_alternate", "user_first", "user_needed", "system_first_only", "portable_ids"}
ENGINES_OWN: Final = {"one_answer_at_end"}
ENGINES_ONLY: Final = {"google-gemma-4-31B-it": {"no_answer_alone"}}
"""What only the engine demands: of an empty history, whose first role it looks up in a list, it makes an error."""

DEMANDS: Final[dict[tuple[str, str], set[str]]] = {
    ("meta-llama-Llama-3.1-8B-Instruct", "llama-bpe"): LLAMA,
    ("meta-llama-Llama-3.3-70B-Instruct", "llama-bpe"): LLAMA,
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "llama-bpe"): {"drops_text_beside_calls"},
    ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-bpe"): {"system_first_only", "results_as_text"},
    ("deepseek-ai-DeepSeek-V3.1", "deepseek-llm"): set(),
    ("Qwen-Qwen2.5-7B-Instruct", "qwen2"): set(),
    ("Qwen-Qwen3-0.6B", "qwen2"): set(),
    ("Qwen3-Coder", "qwen2"): set(),
    ("Qwen3.5-4B", "qwen35"): {"user_needed", "no_answer_alone", "system_first_only"},
    ("Mistral-Small-3.2-24B-Instruct-2506", "llama-bpe"): MISTRAL | {"text_content_only", "drops_text_beside_calls"},
    ("mistralai-Mistral-Nemo-Instruct-2407", "llama-spm"): MISTRAL | {"system_as_user", "drops_text_beside_calls"},
    ("mistralai-Ministral-3-14B-Reasoning-2512", "llama-bpe"): {"roles_alternate", "user_first", "system_first_only"},
    ("microsoft-Phi-3.5-mini-instruct", "phi-3"): {"results_as_text"},
    ("google-gemma-2-2b-it", "llama-spm"): {
        "roles_alternate", "user_first", "user_needed", "system_first_only", "results_as_text",
    },
    ("google-gemma-4-31B-it", "gemma-4"): {"no_answer_alone", "text_content_only"},
    ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r"): {"drops_text_beside_calls"},
    ("openai-gpt-oss-120b", "gpt-2"): {"system_first_only", "one_call_a_message", "drops_text_beside_calls"},
}  # fmt: skip
"""What real templates demand, by template and vocabulary, beside what the engine does for all of them."""


def names(demands: TemplateDemands) -> set[str]:
    """Return the names of what is demanded."""
    return {name for name, demanded in asdict(demands).items() if demanded}


@pytest.mark.parametrize(("template", "vocabulary"), DEMANDS)
async def test_engine_with_real_template_takes_any_history(
    template: str, vocabulary: str, engine_for: Callable[[str, str], LlamaServer]
) -> None:
    """The demands are the known ones; random histories are all rendered, without a loss, and read as rendered."""
    engine = engine_for(template, vocabulary)
    demands = await demands_of_engine(engine)
    assert names(demands) == DEMANDS[template, vocabulary] | ENGINES_OWN
    last: list[Message] = []
    for history in some_histories(150):
        if messages := normalise(history, demands):
            last = messages
            for tools in ((), TOOLS):
                assert words_in(history) <= words_in(await rendered(engine, messages, tools))
    await engine.post("/v1/chat/completions", {"messages": last, "tools": TOOLS, "max_tokens": 1})
    assert engine.prompts() == [await rendered(engine, last, TOOLS)]


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["without tools", "with tools"])
def test_every_real_template_takes_any_history(real_models: Path, tools: Sequence[Mapping[str, Any]]) -> None:
    """All templates that llama.cpp tests with, rendered as the engine does it, show every text that a client sent."""
    templates = sorted(real_models.glob("*.jinja"))
    histories = some_histories(150)
    for path in templates:
        render = render_of(path)
        demands = demands_of(render, tools=bool(tools))
        for history in histories:
            if messages := normalise(history, demands):
                assert words_in(history) <= words_in(render(messages, tools)), path.stem
    assert len(templates) > 60


MAY_CHANGE: Final = {
    "Mistral-Small-3.2-24B-Instruct-2506",  # a later system message breaks its turns or not, depending on the place
    "google-gemma-2-2b-it",  # likewise
    "mistralai-Mistral-Nemo-Instruct-2407",  # it moves the system message to the last user message, and loses it there
    "mistralai-Ministral-3-14B-Reasoning-2512",  # [user, assistant, call, result, assistant], of which the last goes on
}
"""Templates for which a history may be changed that they would take: one rule for each place would not be stable."""


def test_only_what_a_template_demands_is_changed(real_models: Path) -> None:
    """A history of up to three messages in any order of roles stays as it is where the template shows all of it."""
    changed = set()
    for path in sorted(real_models.glob("*.jinja")):
        render = render_of(path)
        demands = demands_of(render, tools=False)
        for messages in short_histories():
            try:
                words = WORD.findall(render(messages, ()))
            except Exception:  # noqa: BLE001  # it refuses the history, which has to change then
                continue
            if (
                list(dict.fromkeys(words)) == WORD.findall(json.dumps(messages))
                and normalise(messages, demands) != messages
            ):
                changed.add(path.stem)
    assert changed <= MAY_CHANGE


def short_histories() -> Iterator[list[Message]]:
    """Yield sound histories of up to three steps: messages of all roles, and calls with their results."""
    for length in (1, 2, 3):
        for roles in product(("system", "user", "assistant", "tool"), repeat=length):
            yield [message for at, role in enumerate(roles) for message in _step(role, at)]


def _step(role: str, at: int) -> list[Message]:
    if role != "tool":
        return [{"role": role, "content": f"word{at}."}]
    function = {"name": NAME, "arguments": json.dumps({"path": f"word{at}."})}
    call = {"id": f"callAbc0{at}", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": call["id"], "content": f"word1{at}."}
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, result]


def test_template_demands_what_its_engine_demands(real_models: Path) -> None:
    """What the engine demands is found by rendering in this process as well, so no engine is needed to find it."""
    for (template, _), expected in DEMANDS.items():
        found = names(demands_of(render_of(real_models / f"{template}.jinja")))
        not_here = ENGINES_ONLY.get(template, set())
        assert found | not_here == expected | ENGINES_OWN, template
