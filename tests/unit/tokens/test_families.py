"""Which family a model belongs to: by the names that LM Studio lists, and by architecture."""

import pytest
from cases import case

from elbowroom.tokens.families import families
from elbowroom.tokens.families.families import (
    ARCHITECTURES,
    NAMES,
    SPECIAL_TOKENS,
    UNKNOWN,
    Family,
    family_of,
    template_source,
)

BY_NAME = {
    "llama-3": "llama3",
    "LLAMA3": "llama3",
    "lmstudio-community/Meta-Llama-3.1-8B-Instruct-GGUF": "llama3",
    "llama-3.2-1b-instruct": "llama3",
    "hermes-3-llama-3.1-8b": "llama3",
    "Llama-4-Scout-17B-16E-Instruct": "llama3",
    "llama-2-7b-chat": "llama2",
    "Llama2-13B": "llama2",
    "codellama-7b-instruct": "llama2",
    "tinyllama-1.1b-chat-v1.0": "llama2",
    "mistral-7b-instruct-v0.3": "mistral",
    "Mixtral-8x7B-Instruct-v0.1": "mistral",
    "codestral-22b-v0.1": "mistral",
    "mistral-small-instruct-2409": "mistral",
    "mistral-nemo-instruct-2407": "nemo",
    "mistralai/mistral-small-3.2": "mistral-small",
    "mistralai/devstral-small-2507": "tekken",
    "mistralai/magistral-small-2509": "tekken",
    "mistralai/ministral-3-14b-reasoning": "tekken",
    "qwen2.5-7b-instruct": "qwen2",
    "qwen2.5-coder-14b": "qwen2",
    "qwen/qwen3-8b": "qwen3",
    "qwen/qwq-32b": "qwen3",
    "qwen/qwen3-coder-30b": "qwen3-coder",
    "qwen3.5-4b": "qwen3.5",
    "openai/gpt-oss-20b": "gpt-oss",
    "gpt-4o": "gpt",
    "GPT-J-6B": "gpt",
    "deepseek-r1-distill-qwen-7b": "deepseek-distill-qwen",
    "deepseek/deepseek-r1-0528-qwen3-8b": "deepseek-distill-qwen",
    "DeepSeek-R1-Distill-Llama-8B": "deepseek-distill-llama",
    "deepseek-v3.1": "deepseek",
    "google/gemma-3-12b": "gemma",
    "google/gemma-4-31b": "gemma4",
    "microsoft/phi-4": "phi4",
    "microsoft/phi-4-mini-reasoning": "phi4-mini",
    "phi-3.5-mini-instruct": "phi3",
    "c4ai-command-r-08-2024": "command-r",
    "c4ai-command-r7b-12-2024": "command-r7b",
    "ibm/granite-3.2-8b": "granite",
    "llama-3.1-nemotron-nano-8b": "llama3",
    "glm-4-9b-chat": "unknown",
    "nvidia-nemotron-nano-9b": "unknown",
    "": "unknown",
}
BY_ARCHITECTURE = {
    "qwen2": "qwen2",
    "Qwen2": "qwen2",
    "qwen3moe": "qwen3",
    "llama": "llama3",
    "mistral3": "tekken",
    "gemma3": "gemma",
    "gemma4": "gemma4",
    "gpt_oss": "gpt-oss",
    "gpt-oss": "gpt-oss",
    "phi3": "phi3",
    "deepseek2": "deepseek",
    "something": "unknown",
}
FAMILIES = [value for value in vars(families).values() if isinstance(value, Family)]


def test_name_tells_the_family() -> None:
    """The names under which models are listed lead to their family, in capitals or not."""
    for name, family in BY_NAME.items():
        with case(name):
            assert family_of(name).name == family_of(name.upper()).name == family


@pytest.mark.parametrize(("architecture", "family"), BY_ARCHITECTURE.items())
def test_architecture_decides_where_the_name_says_nothing(architecture: str, family: str) -> None:
    """A name that tells nothing leaves it to the architecture."""
    assert family_of("my-own-finetune", architecture).name == family


def test_name_wins_over_the_architecture() -> None:
    """A distilled model keeps the turns that its name tells of, not those of the model it was made from."""
    assert family_of("deepseek-r1-distill-qwen-7b", "qwen2").name == "deepseek-distill-qwen"
    assert family_of("qwen2.5-7b-instruct", "llama").name == "qwen2"


def test_newer_mistral_is_told_by_its_architecture() -> None:
    """A model called just Mistral has the newer vocabulary where its architecture is the newer one."""
    assert family_of("mistral-large-2512", "mistral3").name == "tekken"
    assert family_of("mistral-7b-instruct", "llama").name == "mistral"


def test_no_architecture_is_no_error() -> None:
    """Without name and architecture the family is the unknown one."""
    assert family_of("", None) is UNKNOWN


def test_every_family_is_sound() -> None:
    """Each family can be reached, has a format with its marks in it, and a bound for its errors."""
    for family in FAMILIES:
        with case(family.name):
            reachable = {reached.name for _, reached in NAMES} | {reached.name for reached in ARCHITECTURES.values()}
            assert family.name in reachable | {"unknown"}
            source = template_source(family.format)
            assert any(mark in source or mark.removeprefix("<|") in source for mark in SPECIAL_TOKENS[family.format])
            assert 0 < family.error.median <= family.error.p95 < 1


def test_families_have_names_of_their_own() -> None:
    """No two families share a name."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
