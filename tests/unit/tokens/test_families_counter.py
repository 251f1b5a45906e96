"""Counting text and conversations by family."""

import threading
from typing import Any

import pytest
from cases import case

from elbowroom.tokens.families import families
from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.families import Family, family_of
from elbowroom.tokens.families.scripts import script_runs
from elbowroom.tokens.families.vocabularies import bundled_tokenizer

FAMILIES = [value for value in vars(families).values() if isinstance(value, Family)]
Message = dict[str, Any]

SYSTEM: Message = {"role": "system", "content": "Answer briefly."}
USER: Message = {"role": "user", "content": "What time is it? 12345"}
ANSWER: Message = {"role": "assistant", "content": "Late."}
CALL: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "abcDEF123", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
    ],
}
RESULT: Message = {"role": "tool", "tool_call_id": "abcDEF123", "content": '{"time": "23:59"}'}
TOOL: Message = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tell the time of a zone.",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "string", "description": "The zone's name", "enum": ["UTC", "CET"]}},
            "required": ["zone"],
        },
    },
}
PROMPTS = {
    "qwen2.5": "<|im_start|>system\nAnswer briefly.<|im_end|>\n<|im_start|>user\nWhat time is it? 12345<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama-3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nAnswer briefly.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhat time is it? 12345<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "llama-2": "<s>[INST] <<SYS>>\nAnswer briefly.\n<</SYS>>\n\nWhat time is it? 12345 [/INST]",
    "mistral": "<s>[INST]Answer briefly.\n\nWhat time is it? 12345[/INST]",
    "mistral-small": "<s>[SYSTEM_PROMPT]Answer briefly.[/SYSTEM_PROMPT][INST]What time is it? 12345[/INST]",
    "gpt-oss": "<|start|>system<|message|><|end|><|start|>developer<|message|># Instructions\n\nAnswer briefly."
    "\n\n<|end|><|start|>user<|message|>What time is it? 12345<|end|><|start|>assistant",
    "gemma-3": "<bos><start_of_turn>system\nAnswer briefly.<end_of_turn>\n"
    "<start_of_turn>user\nWhat time is it? 12345<end_of_turn>\n<start_of_turn>model\n",
}


@pytest.fixture(scope="module")
def counters() -> dict[str, FamilyCounter]:
    """A counter for every family."""
    return {family.name: FamilyCounter(family) for family in FAMILIES}


@pytest.mark.parametrize(("name", "prompt"), PROMPTS.items())
def test_prompt_is_in_the_familys_format(name: str, prompt: str, counters: dict[str, FamilyCounter]) -> None:
    """A short conversation is laid out as the family's models are trained on."""
    assert counters[family_of(name).name].prompt([SYSTEM, USER]) == prompt


def test_more_conversation_is_more_tokens(counters: dict[str, FamilyCounter]) -> None:
    """Each further exchange adds tokens."""
    for family in FAMILIES:
        with case(family.name):
            count = counters[family.name].count_chat
            exchange = [USER, ANSWER]
            counts = [count([SYSTEM, *exchange * times, USER]).tokens for times in range(4)]
            assert counts == sorted(set(counts))


ODD: list[tuple[list[Message], list[Message]]] = [
    ([], []),
    ([SYSTEM], []),
    ([USER, USER], []),
    ([ANSWER], []),
    ([SYSTEM, USER, CALL, RESULT], [TOOL]),
    ([SYSTEM, USER, CALL], [TOOL]),
    ([RESULT, USER, CALL, RESULT, RESULT, ANSWER, SYSTEM], [TOOL]),
    ([{"role": "critic", "content": [{"type": "text", "text": "Well."}, {"type": "image_url"}]}, {}], []),
    ([{"role": "developer", "content": "Be kind."}, USER], [TOOL]),
    (
        [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{broken"}}]}],
        [],
    ),
    (
        [USER],
        [{}, {"type": "function"}, {"function": {"name": "f", "parameters": {"properties": {"a": True}}}}],
    ),
    (
        [USER],
        [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": {"x": 1}, "enum": 7}}}}}],
    ),
]


@pytest.mark.slow
def test_odd_conversations_are_counted(counters: dict[str, FamilyCounter]) -> None:
    """Whatever a client sends has a count: nothing, only a system message, calls, strange roles, broken tools."""
    for family in FAMILIES:
        with case(family.name):
            for messages, tools in ODD:
                for add_generation_prompt in (True, False):
                    counted = counters[family.name].count_chat(
                        messages, tools, add_generation_prompt=add_generation_prompt
                    )
                    assert counted.tokens >= 0
                    assert counted.error_bound >= family.error_of(counted.tokens)


def test_unfinished_answer_goes_on(counters: dict[str, FamilyCounter]) -> None:
    """A conversation that ends with an answer is continued: no end of turn, no new generation prompt."""
    for family in FAMILIES:
        with case(family.name):
            counter = counters[family.name]
            continued = counter.prompt([USER, ANSWER])
            assert continued.endswith("Late.")
            assert counter.prompt([USER, ANSWER], add_generation_prompt=False).startswith(continued)
            assert counter.count_chat([USER, ANSWER]).tokens <= (
                counter.count_chat([USER, ANSWER], add_generation_prompt=False).tokens
            )


def test_tools_cost_what_they_are_written_as(counters: dict[str, FamilyCounter]) -> None:
    """Tools are in the prompt, and more of them cost more, with the sentences around them on top."""
    counter = counters["qwen2"]
    none, one, two = (counter.count_chat([SYSTEM, USER], [TOOL] * number).tokens for number in range(3))
    assert one - none > counter.family.preamble.with_tools
    assert 40 < two - one < one - none


def test_thinking_is_counted_where_templates_keep_it(counters: dict[str, FamilyCounter]) -> None:
    """Thinking of answered turns is dropped; in a running turn Qwen 3 keeps it and Qwen 2 does not."""
    long_thought = "First I look at the clock, then I think about it once more. " * 20
    thought = {**CALL, "reasoning_content": long_thought}
    answered = [USER, {**ANSWER, "content": f"<think>{long_thought}</think>Late."}, USER]
    running = [USER, thought, RESULT]
    for name, kept in (("qwen2", False), ("qwen3", True), ("gpt-oss", True)):
        counter = counters[name]
        assert counter.count_chat(answered) == counter.count_chat([USER, ANSWER, USER])
        plain = counter.count_chat([USER, CALL, RESULT]).tokens
        assert (counter.count_chat(running).tokens > plain + 200) is kept
        unasked = counter.count_chat([SYSTEM, thought, RESULT, CALL]).tokens
        assert (unasked > counter.count_chat([SYSTEM, CALL, RESULT, CALL]).tokens + 200) is kept


def test_template_arguments_reach_the_template(counters: dict[str, FamilyCounter]) -> None:
    """Switching thinking off adds the empty thought that Qwen 3 is given, and no argument can displace messages."""
    counter = counters["qwen3"]
    plain = counter.count_chat([USER]).tokens
    assert counter.count_chat([USER], arguments={"enable_thinking": False}).tokens == plain + 4
    assert counter.count_chat([USER], arguments={"messages": [], "continues": True}).tokens == plain


def test_method_tells_whose_vocabulary_it_was(counters: dict[str, FamilyCounter]) -> None:
    """A count with the family's own vocabulary says so; one with the nearest is an estimate."""
    assert counters["qwen2"].count_chat([USER]).method == "family"
    assert counters["gpt-oss"].count_chat([USER]).method == "family"
    assert counters["llama3"].count_chat([USER]).method == "estimate"
    assert counters["unknown"].count_chat([USER]).method == "estimate"


def test_scripts_are_weighed_by_themselves(counters: dict[str, FamilyCounter]) -> None:
    """A text's count is the weighed sum of the vocabularies that are near in its script; English stays as it is.

    What the core of a family's vocabulary has alone is counted by it, and is as certain as English.
    """
    counter = counters["llama3"]
    raw, scales = counter._segments.tokenizer.count, counter.family.ratios.scripts
    hebrew, bulgarian = "כל בני האדם נולדו בני חורין", "Всички хора се раждат свободни и равни"
    weights, other = scales["cyrillic"].weights, bundled_tokenizer("o200k", frozenset()).count
    assert set(weights) == {"cl100k", "o200k"}
    near = weights["cl100k"] * raw(bulgarian) + weights["o200k"] * other(bulgarian)
    assert counter.count_text(bulgarian) == round(near)
    assert counter.count(hebrew).tokens == raw(hebrew)
    assert counter.count(hebrew).error_bound == counter.family.error_of(raw(hebrew))
    assert counter.count_text("plain English") == raw("plain English")


def test_scripts_are_told_apart() -> None:
    """Runs of each script are found, and Chinese characters beside kana count as Japanese."""
    runs = script_runs("Hello 漢字だ, 窗口 и ещё слово 한국어 x")
    assert runs == {"kana": "漢字だ", "han": "窗口", "cyrillic": " и ещё слово", "hangul": " 한국어"}
    assert script_runs("plain") == {}


def test_prompt_counts_like_its_text(counters: dict[str, FamilyCounter]) -> None:
    """The count of a conversation is that of its prompt and the family's fixed sentences."""
    for name in ("mistral-small", "gpt-oss", "llama3"):
        counter = counters[name]
        prompt = counter.prompt([SYSTEM, USER], [TOOL])
        preamble = counter.family.preamble
        expected = counter.count_text(prompt) + preamble.always + preamble.with_tools
        assert counter.count_chat([SYSTEM, USER], [TOOL]).tokens == expected
        without = counter.count_chat([USER]).tokens - counter.count_text(counter.prompt([USER]))
        assert without == preamble.always + preamble.without_system


@pytest.mark.slow
def test_counter_may_be_used_by_many_threads(counters: dict[str, FamilyCounter]) -> None:
    """Threads that count at the same time get the same numbers as one alone."""
    counter = counters["qwen3"]
    chats: list[list[Message]] = [[SYSTEM, *[USER, ANSWER] * number, USER] for number in range(20)]
    expected = [FamilyCounter(counter.family).count_chat(chat).tokens for chat in chats]
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.append([counter.count_chat(chat).tokens for chat in chats]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_bound_is_that_of_the_scripts(counters: dict[str, FamilyCounter]) -> None:
    """A count without the model's vocabulary states a wider error for Chinese, Arabic or emoji than for English."""
    for name in ("llama3", "llama2", "phi3"):  # the others are as uncertain in code as in most scripts
        counter = counters[name]
        english = counter.count("The server has restarted at three in the morning. " * 20)
        for text in (
            "服务器在凌晨三点重新启动，之后所有的连接都恢复了正常。",
            "إذا كانت نافذة السياق صغيرة",
            "🙂🎉🚀 ❤️",
        ):
            with case(f"{name}: {text}"):
                other = counter.count(text * 20)
                assert other.error_bound / other.tokens > english.error_bound / english.tokens
