"""Real chat templates take every normalised history, rendered by the engine and by the templates themselves."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pytest
from demanding_templates import drops_calls
from engine_rendering import demands_of_engine, render_of, rendered
from random_histories import TOOLS, some_histories, words_in, words_shown

from elbowroom.context.templates.demands import TemplateDemands, demands_of
from elbowroom.context.templates.normalise import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from llama_server import LlamaServer

    from elbowroom.context.transcript import Message

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LLAMA: Final = {"user_first", "user_needed", "one_call_a_message", "drops_text_beside_calls"}
MISTRAL: Final = {"roles_alternate", "user_first", "user_needed", "system_first_only", "portable_ids"}
ENGINES_OWN: Final = {"one_answer_at_end"}
ENGINES_ONLY: Final = {"google-gemma-4-31B-it": {"user_needed"}}
"""What only the engine demands: of an empty history, whose first role it looks up in a list, it makes an error."""

DROPS_CALLS: Final = {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
"""Templates that show no calls of a history, or none beside text."""

DEMANDS: Final[dict[tuple[str, str], set[str]]] = {
    ("meta-llama-Llama-3.1-8B-Instruct", "llama-bpe"): LLAMA,
    ("meta-llama-Llama-3.3-70B-Instruct", "llama-bpe"): LLAMA,
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "llama-bpe"): {"drops_text_beside_calls"},
    ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-bpe"): {"system_first_only"},
    ("deepseek-ai-DeepSeek-V3.1", "deepseek-llm"): set(),
    ("Qwen-Qwen2.5-7B-Instruct", "qwen2"): set(),
    ("Qwen-Qwen3-0.6B", "qwen2"): set(),
    ("Qwen3-Coder", "qwen2"): set(),
    ("Qwen3.5-4B", "qwen35"): {"user_needed", "system_first_only"},
    ("Mistral-Small-3.2-24B-Instruct-2506", "llama-bpe"): MISTRAL | {"text_content_only", "drops_text_beside_calls"},
    ("mistralai-Mistral-Nemo-Instruct-2407", "llama-spm"): MISTRAL | {"system_as_user", "drops_text_beside_calls"},
    ("mistralai-Ministral-3-14B-Reasoning-2512", "llama-bpe"): {"roles_alternate", "user_first", "system_first_only"},
    ("microsoft-Phi-3.5-mini-instruct", "phi-3"): {"results_as_text"},
    ("google-gemma-2-2b-it", "llama-spm"): {
        "roles_alternate", "user_first", "user_needed", "system_first_only", "results_as_text",
    },
    ("google-gemma-4-31B-it", "gemma-4"): {"user_needed", "text_content_only"},
    ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r"): {"drops_text_beside_calls"},
    ("openai-gpt-oss-120b", "gpt-2"): {"system_first_only", "one_call_a_message", "drops_text_beside_calls"},
}  # fmt: skip
"""What real templates demand, by template and vocabulary, beside what the engine does for all of them."""


def names(demands: TemplateDemands) -> set[str]:
    """Return the names of what is demanded."""
    return {name for name, demanded in asdict(demands).items() if demanded}


def prompt_words(messages: Sequence[Mapping[str, Any]], demands: TemplateDemands, *, calls: bool) -> set[str]:
    """Return the words that have to be in the prompt: all but those that the template itself always drops."""
    return words_shown(messages, calls=calls, beside_calls=not demands.drops_text_beside_calls)


@pytest.mark.parametrize(("template", "vocabulary"), DEMANDS)
async def test_engine_with_real_template_takes_any_history(
    template: str, vocabulary: str, engine_for: Callable[[str, str], LlamaServer]
) -> None:
    """The demands are the known ones; random histories are all rendered, without a loss, and read as rendered."""
    engine = engine_for(template, vocabulary)
    demands = await demands_of_engine(engine)
    assert names(demands) == DEMANDS[template, vocabulary] | ENGINES_OWN
    last: list[Message] = []
    for messages in filter(None, (normalise(history, demands) for history in some_histories(150))):
        last = messages
        for tools in ((), TOOLS):
            assert prompt_words(messages, demands, calls=template not in DROPS_CALLS) <= words_in(
                await rendered(engine, messages, tools)
            )
    await engine.post("/v1/chat/completions", {"messages": last, "tools": TOOLS, "max_tokens": 1})
    assert engine.prompts() == [await rendered(engine, last, TOOLS)]


def test_every_real_template_takes_any_history(real_models: Path) -> None:
    """All templates that llama.cpp tests with, rendered as the engine does it, refuse nothing and lose nothing."""
    templates = sorted(real_models.glob("*.jinja"))
    histories = some_histories(150)
    for path in templates:
        render = render_of(path)
        demands = demands_of(render)
        shows_calls = demands.results_as_text or not drops_calls(render)
        for messages in filter(None, (normalise(history, demands) for history in histories)):
            for tools in ((), TOOLS):
                assert prompt_words(messages, demands, calls=shows_calls) <= words_in(render(messages, tools)), (
                    path.stem
                )
    assert len(templates) > 60


def test_template_demands_what_its_engine_demands(real_models: Path) -> None:
    """What the engine demands is found by rendering in this process as well, so no engine is needed to find it."""
    for (template, _), expected in DEMANDS.items():
        found = names(demands_of(render_of(real_models / f"{template}.jinja")))
        not_here = ENGINES_ONLY.get(template, set())
        assert found | not_here == expected | ENGINES_OWN, template
