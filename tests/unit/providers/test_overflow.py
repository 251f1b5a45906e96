"""The wordings of overflow: which engine says it how, and what is no overflow."""

import pytest
from cases import case
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.demo import wording
from elbowroom.providers.failures import Overflow, recognise_overflow

TEXTS = {
    "A": (
        (
            "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5228>= "
            "n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input."
        ),
        Overflow(4096, 5228),
    ),
    "A bare": ("the number of TOKENS TO KEEP FROM THE INITIAL PROMPT is greater than the context length", Overflow()),
    "B": (
        (
            "Trying to keep the first 6009 tokens when context the overflows. However, the model is loaded "
            "with context "
            "length of only 4096 tokens, which is not enough."
        ),
        Overflow(4096, 6009),
    ),
    "B mended": (
        (
            "Trying to keep the first 6009 tokens when the context overflows. However, the model is loaded "
            "with context "
            "length of only 4096 tokens"
        ),
        Overflow(4096, 6009),
    ),
    "C": (
        (
            "Input does not fit in context length. The input has 6009 tokens, but the context length only "
            "supports 4096 "
            "tokens."
        ),
        Overflow(4096, 6009),
    ),
    "D": ("Cannot truncate prompt with n_keep (6009) >= n_ctx (4096)", Overflow(4096, 6009)),
    "E": ("Context size has been exceeded.", Overflow()),
    "F": (
        (
            "Reached context length of 4096 tokens with model (arch: gemma3) that does not currently support"
            " mid-generation "
            "context overflow."
        ),
        Overflow(4096),
    ),
    "G": ("Input length 6009 exceeds context length 4096", Overflow(4096, 6009)),
    "H": (
        "request (6009 tokens) exceeds the available context size (4096 tokens), try increasing it",
        Overflow(4096, 6009),
    ),
    "H older": (
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        Overflow(),
    ),
    "H by type": ('{"code": 400, "type": "exceed_context_size_error", "message": "too long"}', Overflow()),
    "H by fields": (
        '{"type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 6009, "n_ctx": 4096}',
        Overflow(4096, 6009),
    ),
    "J": (
        (
            "This model's maximum context length is 4096 tokens. However, you requested 6009 tokens (5009 in"
            " the messages, "
            "1000 in the completion)."
        ),
        Overflow(4096, 6009),
    ),
    "J, OpenAI": (
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 6009 tokens.",
        Overflow(4096, 6009),
    ),
    "J, newer vLLM": (
        (
            "You passed 6009 input tokens and requested 100 output tokens. However, the model's context "
            "length is only 4096 "
            "tokens, resulting in a maximum input length of 3996 tokens."
        ),
        Overflow(4096, 6009),
    ),
    "J, vLLM of 2026": (
        (
            "You passed 6009 input tokens and requested 100 output tokens. However, the model's context "
            "length is only "
            "4096, resulting in a maximum input length of 3996. Please reduce the length of the input messages."
        ),
        Overflow(4096, 6009),
    ),
    "J, input tokens": (
        "This model's maximum context length is 4096 tokens. However, your request has 6009 input tokens.",
        Overflow(4096, 6009),
    ),
    "by code": ('{"code": "context_length_exceeded", "message": "no"}', Overflow()),
}


def test_each_wording_is_recognised_with_its_numbers() -> None:
    """Every engine's sentence gives the window and the prompt that it names."""
    for name in TEXTS:
        with case(name):
            text, expected = TEXTS[name]
            assert recognise_overflow(text) == expected


def test_case_and_company_do_not_matter() -> None:
    """Upper case, a prefix, a suffix and quotes around it: it stays the same sentence."""
    for name in TEXTS:
        with case(name):
            text, expected = TEXTS[name]
            assert recognise_overflow(text.upper()) == expected
            assert recognise_overflow(f'Error code: 400 - {{"error": "{text}"}} (request 77)') == expected


@given(
    name=st.sampled_from(["A", "B", "C", "D", "G"]),
    prompt=st.integers(1, 10**7),
    window=st.integers(1, 10**7),
)
def test_numbers_of_any_size_are_read(name: str, prompt: int, window: int) -> None:
    """The simulator's own sentences give back the numbers that went into them."""
    text = wording(name, prompt, window, "qwen2")  # type: ignore[arg-type]  # one of the Literal's values
    assert recognise_overflow(text) == Overflow(window, prompt)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The model has crashed without additional information. (Exit code: 6)",
        "'response_format.type' must be 'json_schema' or 'text'",
        "Multiple models are loaded. Please specify a model by providing a 'model' field.",
        "Failed to load model: insufficient memory for a context length of 131072 tokens",
        "max_tokens must be at least 1",
        "Rate limit reached: 4096 tokens per minute",
        "Unexpected endpoint or method. (GET /context)",
        "The context length of this model is 4096 tokens.",
        "invalid context_length",
    ],
)
def test_other_errors_are_no_overflow(text: str) -> None:
    """A word about context or tokens is not enough."""
    assert recognise_overflow(text) is None


def test_an_absurd_number_does_no_harm() -> None:
    """A number of thousands of digits is cut, not refused by Python with an error of its own."""
    overflow = recognise_overflow(f"Input length {'9' * 10_000} exceeds context length {'8' * 10_000}")
    assert overflow is not None
    assert overflow.window == int("8" * 12)


@given(text=st.text(max_size=300))
def test_any_text_is_answered(text: str) -> None:
    """No text breaks the search."""
    recognise_overflow(text)
    recognise_overflow(f"request ({text} tokens) exceeds the available context size ({text} tokens)")
