#!/usr/bin/env python3
"""Measures how far counts without a model file are off, against real vocabularies and chat templates.

--write         put the tables into docs/counting.md
--ratios        print how many tokens of each real vocabulary stand for one of the shipped ones, by kind of text
--transcripts   a folder of recorded conversations to measure as well; one beside the repository is found by itself
"""

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

import platformdirs
from accuracy_texts import KINDS, Conversation, Texts, generated, transcripts
from llama_cpp_archive import llama_cpp_archive, unpack_models

from elbowroom.tokens.anchoring import Usage, UsageAnchors, conversation_keys
from elbowroom.tokens.errors import ConversationNotContinuable, TemplateFailed
from elbowroom.tokens.families import families
from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.families import SPECIAL_TOKENS, Family
from elbowroom.tokens.families.vocabularies import VOCABULARIES, VocabularyName, bundled_tokenizer
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.tokenizer import Tokenizer, special_token_pattern
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest

REPOSITORY: Final = Path(__file__).parents[2]
DOCUMENT: Final = REPOSITORY / "docs" / "counting.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
CONVERSATIONS: Final = 60
OWN: Final = "own"


@dataclass(frozen=True, slots=True)
class Case:
    """A family, and a real vocabulary and template to measure it by; "own" is the family's own.

    Without `tools` only conversations that have none are measured, for templates that leave them out.
    """

    family: Family
    vocabulary: str
    template: str
    tools: bool = True


CASES: Final = (
    Case(families.LLAMA3, "llama-bpe", "meta-llama-Llama-3.1-8B-Instruct"),
    Case(families.LLAMA3, "llama-bpe", "meta-llama-Llama-3.2-3B-Instruct"),
    Case(families.LLAMA2, "llama-spm", OWN),
    Case(families.QWEN2, "qwen2", "Qwen-Qwen2.5-7B-Instruct"),
    Case(families.QWEN3, "qwen2", "Qwen-Qwen3-0.6B"),
    Case(families.QWEN3_CODER, "qwen2", "Qwen3-Coder"),
    Case(families.QWEN35, "qwen35", "Qwen3.5-4B"),
    Case(families.MISTRAL, OWN, "mistralai-Mistral-Nemo-Instruct-2407"),
    Case(families.NEMO, OWN, "mistralai-Mistral-Nemo-Instruct-2407"),
    Case(families.MISTRAL_SMALL, OWN, "Mistral-Small-3.2-24B-Instruct-2506"),
    Case(families.GPT_OSS, OWN, "openai-gpt-oss-120b"),
    Case(families.DEEPSEEK_LLAMA, "llama-bpe", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", tools=False),
    Case(families.DEEPSEEK_QWEN, "qwen2", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
    Case(families.GEMMA4, "gemma-4", "google-gemma-4-31B-it"),
    Case(families.PHI3, "phi-3", "microsoft-Phi-3.5-mini-instruct", tools=False),
    Case(families.COMMAND_R, "command-r", OWN),
    Case(families.COMMAND_R7B, "command-r", "CohereForAI-c4ai-command-r7b-12-2024-tool_use"),
    Case(families.GRANITE, "refact", "ibm-granite-granite-3.3-2B-Instruct"),
    Case(families.UNKNOWN, "deepseek-llm", OWN),
    Case(families.UNKNOWN, "falcon", OWN),
    Case(families.UNKNOWN, "mpt", OWN),
    Case(families.UNKNOWN, "starcoder", OWN),
)


class Truth:
    """Counts prompts with a real vocabulary and template, as the engine does."""

    def __init__(self, case: Case, models: Path) -> None:
        self.family = case.family
        self.counter = family_counter(case.family)
        self.tokenizer = (
            real_tokenizer(models / f"ggml-vocab-{case.vocabulary}.gguf") if case.vocabulary != OWN else None
        )
        own = bundled_tokenizer(case.family.vocabulary, SPECIAL_TOKENS[case.family.format])
        self.count_piece: Callable[[str], int] = (self.tokenizer or own).count
        source = None if case.template == OWN else (models / f"{case.template}.jinja").read_text(encoding="utf-8")
        extra = set(
            re.findall(
                r"<[|\uff5c][^<>{}\s]+[|\uff5c]>|\[/?[A-Z_]{3,}\]|<[a-z_]+_of_turn>|<turn\|>|</?tool_call>|</?think>",
                source or "",
            )
        )
        known = self.tokenizer.special_tokens if self.tokenizer else frozenset[str]()
        specials = SPECIAL_TOKENS[case.family.format] | extra
        self.specials = special_token_pattern(specials | known)
        self.template = (
            ChatPrompt(source, bos_token="<s>", eos_token="</s>", clock=lambda: datetime(2024, 7, 26, tzinfo=UTC))
            if source
            else None
        )

    def prompt(self, conversation: Conversation, end: int, *, add_generation_prompt: bool = True) -> str:
        """Return the real prompt for the first `end` messages."""
        if self.template is None:
            return self.counter.prompt(
                conversation.messages[:end], conversation.tools, add_generation_prompt=add_generation_prompt
            )
        request = ChatRequest(conversation.messages[:end], conversation.tools or None)
        return self.template.text(request)

    def count(self, text: str) -> int:
        """Return the real number of tokens of a prompt, one for each special token."""
        assert self.specials is not None
        pieces = self.specials.split(text)
        return sum(map(self.count_piece, filter(None, pieces))) + len(self.specials.findall(text))


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors as shares of the true count, with their signs: without anything known, and after an answer."""

    first: Sequence[float]
    later: Sequence[float]
    refused: int


@cache
def real_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a vocabulary file."""
    return build_tokenizer(read_gguf_header(path))


@cache
def family_counter(family: Family) -> FamilyCounter:
    """Return the counter that is measured."""
    return FamilyCounter(family)


def measure(case: Case, models: Path, conversations: Sequence[Conversation]) -> Errors:
    """Count every request of the conversations: as if nothing were known, and with the answers before it."""
    truth = Truth(case, models)
    first: list[float] = []
    later: list[float] = []
    refused = 0
    for conversation in conversations:
        if not case.tools and has_tools(conversation):
            continue
        try:
            for number, (fresh, anchored) in enumerate(requests(truth, conversation)):
                first.append(fresh)
                if number:
                    later.append(anchored)
        except (TemplateFailed, ConversationNotContinuable):
            refused += 1
    return Errors(first, later, refused)


def has_tools(conversation: Conversation) -> bool:
    """Tell whether tools are offered or used in a conversation."""
    return bool(conversation.tools) or any(message["role"] == "tool" for message in conversation.messages)


def requests(truth: Truth, conversation: Conversation) -> Iterator[tuple[float, float]]:
    """Yield the errors of the requests that were answered, without and with what was learned before."""
    counter, anchors = truth.counter, UsageAnchors()
    keys = conversation_keys("model", conversation.messages, conversation.tools)
    for place, message in enumerate(conversation.messages):
        if message["role"] != "assistant" or not place:
            continue
        real = truth.count(truth.prompt(conversation, place))
        guess = counter.count_chat(conversation.messages[:place], conversation.tools).tokens
        anchored = anchors.corrected(keys[: place + 1], guess).tokens
        yield guess / real - 1, anchored / real - 1
        usage = Usage(real, truth.count_piece(message["content"]) + 1)
        anchors.observe(keys[: place + 1], guess, usage)
        if message["content"] and not message.get("tool_calls"):
            answer = counter.count_text(message["content"]) + 1
            anchors.observe_answer(keys[: place + 1], message, guess, answer, usage)


def table(models: Path, conversations: Sequence[Conversation]) -> list[str]:
    """Return the rows of the table of errors."""
    rows = [
        "| family | measured by | requests | first: median | p95 | worst | after an answer: median | p95 | worst |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for case in CASES:
        errors = measure(case, models, conversations)
        by = f"{case.vocabulary} / {case.template}"
        numbers = " | ".join(f"{share:.1%}" for values in (errors.first, errors.later) for share in figures(values))
        refused = f" ({errors.refused} conversations refused by the template)" if errors.refused else ""
        bias = statistics.median(errors.first)
        rows.append(f"| {case.family.name} | {by}{refused} | {len(errors.first)} | {numbers} |")
        sys.stderr.write(f"{rows[-1]} bias {bias:+.2%}\n")
    return rows


def figures(errors: Sequence[float]) -> tuple[float, float, float]:
    """Return median, 95th percentile and worst of the sizes of errors."""
    sizes = sorted(map(abs, errors))
    if not sizes:
        return 0.0, 0.0, 0.0
    return statistics.median(sizes), sizes[round(0.95 * (len(sizes) - 1))], sizes[-1]


def ratios(models: Path) -> Iterator[str]:
    """Yield, for real vocabularies, the ratio of counts by kind of text to those of the shipped ones."""
    texts = Texts(1)
    samples = {kind: [texts.of(kind, 1500) for _ in range(12)] for kind in KINDS}
    candidates: tuple[VocabularyName, ...] = (*VOCABULARIES, "mistral")
    for path in sorted(models.glob("ggml-vocab-*.gguf")):
        if "bert" in path.name:
            continue
        real = real_tokenizer(path)
        for name in candidates:
            near = bundled_tokenizer(name, frozenset())
            shares = {
                kind: sum(map(real.count, parts)) / sum(map(near.count, parts)) for kind, parts in samples.items()
            }
            text = statistics.median(share for kind, share in shares.items() if samples[kind][0].isascii())
            listed = " ".join(f"{kind} {share:.2f}" for kind, share in shares.items())
            yield f"{path.stem.removeprefix('ggml-vocab-'):16} {name:18} text {text:.3f}: {listed}"


def recordings() -> Path | None:
    """Return the folder `data/transcripts` of a neighbour of the repository, if there is one."""
    return next(REPOSITORY.parent.glob("*/data/transcripts"), None)


def main() -> None:
    """Measure and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--ratios", action="store_true")
    arguments.add_argument("--transcripts", type=Path, default=recordings())
    given = arguments.parse_args()
    archive = llama_cpp_archive(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        unpack_models(archive, models)
        if given.ratios:
            sys.stdout.writelines(f"{line}\n" for line in ratios(models))
            return
        conversations = [generated(seed) for seed in range(CONVERSATIONS)]
        if given.transcripts:
            conversations += transcripts(given.transcripts)
        rows = "\n".join(table(models, conversations))
    if given.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{rows}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(f"{rows}\n")


if __name__ == "__main__":
    main()
