"""A prompt that the engine refuses all the same: before the first word nobody notices, after it nothing is lost."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest
from chatting import MODEL, RAW_MODEL, calls_of, chunks_of, function_spec, stream_bytes
from outcome import Outcome, chat
from patient_counting import wait_for_counts
from serving import Served
from small_window import ANSWER, QUESTION, WINDOW, history, small_window, turns_of
from spread_variants import spread, spread_few

from elbowroom.demo import Cut, Error, Reasoning, Reply, Script, SimulatedLMStudio, Text, ToolCall, wording
from elbowroom.demo.journal import RecordedRequest

Body = dict[str, Any]
LMStudioWording = Literal["A", "B", "C", "D", "E", "F", "G"]
REAL: Final = 550
"""The window that the engine really has, while its list says 1000."""
WORDINGS: Final = {name: wording(name, 640, REAL, "gemma3") for name in get_args(LMStudioWording)} | {
    "H": f"request (640 tokens) exceeds the available context size ({REAL} tokens), try increasing it",
    "J": f"This model's maximum context length is {REAL} tokens. However, you requested 640 tokens.",
}
TOLD: Final = ("A", "E", "F", "J")
"""Those that name both numbers, none, and the window alone, and another server's."""
SAME: Final = sorted(set(WORDINGS) - set(TOLD))
"""Those that say what A says; the table of all wordings, in the tests of units, tells that each is read so."""
FORMS: Final[dict[str, Callable[[str], Script]]] = {
    "status": lambda text: Script(Reply(400, {"error": text})),
    "event": lambda text: Script(Error(text)),
    "engine": lambda text: Script(Reply(500, {"error": {"message": text, "type": "server_error"}})),
}
LOST: Final = (
    "Model is unloaded.",
    "The model has crashed without additional information. (Exit code: 6)",
    "Channel Error",
)
ECHO: Final = "Failed to parse input at pos 9: The log says: image input is not supported"
"""What llama.cpp says where it cannot read the end of what a model wrote."""
CHAT: Final = history(7)


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


class Engine:
    """Answers turns with these, one after the other, and then with the one answer; `before` comes before the first."""

    def __init__(self, *scripts: Script, before: Callable[[], object] | None = None, repeat: bool = False) -> None:
        self._scripts = list(scripts)
        self._repeat = repeat
        self.before = before

    def __call__(self, body: Body) -> Script | str:
        if self.before is not None:
            self.before()
            self.before = None
        if self._scripts:
            return self._scripts[0] if self._repeat else self._scripts.pop(0)
        return ANSWER


async def ask(served: Served, *, stream: bool, messages: list[Body] | None = None, **fields: Any) -> Outcome:
    """Send the conversation."""
    return await chat(served, RAW_MODEL, stream=stream, **{"messages": messages or CHAT, **fields})


def length(turn: RecordedRequest) -> int:
    """Return how long a request's messages are, in characters."""
    return sum(len(json.dumps(message)) for message in turn.body["messages"])


def assert_recovered(outcome: Outcome, studio: SimulatedLMStudio) -> None:
    """Check that the client has the whole answer, to a prompt that is smaller than the one that was refused."""
    assert (outcome.status, outcome.error, outcome.text) == (200, None, ANSWER)
    refused, *others = turns_of(studio)
    assert 1 <= len(others) <= 3
    assert length(others[-1]) < length(refused)
    assert others[-1].body["messages"][-1] == CHAT[-1]


@pytest.mark.fault("overflow refused", "first", "compacted and sent anew")
@pytest.mark.parametrize(("name", "form", "stream"), spread_few(TOLD, SAME, FORMS, [True, False]))
async def test_before_the_first_word(tmp_path: Path, name: str, form: str, *, stream: bool) -> None:
    """Whatever the words and wherever they stand: the history shrinks, and the client has its whole answer."""
    async with small_window(tmp_path, Engine(FORMS[form](WORDINGS[name]))) as (served, studio):
        assert_recovered(await ask(served, stream=stream), studio)
        if name != "E":
            assert (turns_of(studio)[-1].counted_tokens or 0) < REAL


@pytest.mark.fault("overflow refused", "streaming", "words kept, error frame; the window is learned")
@pytest.mark.parametrize(("name", "first"), spread_few(TOLD, SAME, [Text("Half a"), Reasoning("Hm")]))
async def test_after_the_first_word(tmp_path: Path, name: str, first: Text | Reasoning) -> None:
    """The words so far stay, an error frame says why, and the next request is within the window that was taught."""
    async with small_window(tmp_path, Engine(Script(first, Error(WORDINGS[name])))) as (served, studio):
        outcome = await ask(served, stream=True)
        assert outcome.text == ("Half a" if isinstance(first, Text) else "")
        assert outcome.error is not None
        assert outcome.error["code"] == "context_length_exceeded"
        [failed] = turns_of(studio)
        assert (await ask(served, stream=True)).text == ANSWER
        used = failed.counted_tokens or 0
        assert (turns_of(studio)[-1].counted_tokens or 0) < (used if name == "E" else REAL)


@pytest.mark.parametrize(("name", "stream"), spread_few(TOLD, SAME, [True, False]))
async def test_nothing_is_compacted_where_the_person_does_not_want_it(
    tmp_path: Path, name: str, *, stream: bool
) -> None:
    """With `auto = false` the overflow is the client's, in OpenAI's form; what was named is learned all the same."""
    engine = Engine(FORMS["status"](WORDINGS[name]))
    async with small_window(tmp_path, engine, compaction="auto = false") as (served, studio):
        for _ in range(1 if name == "E" else 2):
            outcome = await ask(served, stream=stream)
            assert outcome.status == 400
            assert outcome.error is not None
            assert outcome.error["code"] == "context_length_exceeded"
        assert len(turns_of(studio)) == 1


@pytest.mark.parametrize(
    ("script", "stream"), spread([FORMS["event"](WORDINGS["E"]), FORMS["status"](WORDINGS["A"])], [True, False])
)
async def test_an_engine_that_refuses_everything(tmp_path: Path, script: Script, *, stream: bool) -> None:
    """After three restarts at most the client has an error, and the server goes on."""
    async with small_window(tmp_path, Engine(script, repeat=True)) as (served, studio):
        outcome = await ask(served, stream=stream)
        assert outcome.status == 400 or stream
        assert outcome.error is not None
        assert outcome.error["code"] == "context_length_exceeded"
        assert 2 <= len(turns_of(studio)) <= 4


@pytest.mark.fault("overflow as an empty stream", "first", "compacted and sent anew")
@pytest.mark.parametrize(
    ("script", "stream"),
    spread(
        [Script(usage=None), Script(), *(Script(Error(text)) for text in (*LOST, ECHO)), Script(Cut())], [True, False]
    ),
)
async def test_breaking_down_near_the_edge(tmp_path: Path, script: Script, *, stream: bool) -> None:
    """Not a word, with or without usage, and a crash: where the prompt fills the window, it did not fit.

    Nor do words on pictures say anything else where it has none.
    """
    engine = Engine(script)
    async with small_window(tmp_path, engine) as (served, studio):
        async with served.http.post(
            f"{served.chat_url}/input_tokens", json={"model": RAW_MODEL, "messages": CHAT}
        ) as response:
            tokens = (await response.json())["input_tokens"]
        engine.before = lambda: studio.reload(MODEL, tokens + 10)
        assert_recovered(await ask(served, stream=stream), studio)
        assert turns_of(studio)[-1].fitted


@pytest.mark.fault("model lost", "first", "sent once more")
@pytest.mark.parametrize(
    ("script", "stream"),
    spread(
        [*(Script(Error(text)) for text in LOST), Script(Reply(400, {"error": LOST[0]})), Script(Cut())], [True, False]
    ),
)
async def test_a_model_that_is_lost_far_from_the_edge(tmp_path: Path, script: Script, *, stream: bool) -> None:
    """The very same prompt is sent once more, to the model that is loaded again by then."""
    messages = history(1)
    engine = Engine(script)
    async with small_window(tmp_path, engine) as (served, studio):
        outcome = await ask(served, stream=stream, messages=messages)
        assert (outcome.error, outcome.text) == (None, ANSWER)
        first, second = turns_of(studio)
        assert first.body["messages"] == second.body["messages"] == messages


@pytest.mark.parametrize(("form", "stream"), spread(FORMS, [True, False]))
async def test_pictures_that_the_model_does_not_take_are_no_overflow(
    tmp_path: Path, form: str, *, stream: bool
) -> None:
    """However full they make the window: the person hears of them, nothing is compacted for it and nothing learned."""
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/pier.png"}}
    shown = {"role": "user", "content": [{"type": "text", "text": QUESTION}, picture]}
    engine = Engine(FORMS[form]("image input is not supported - hint: you may need to provide the mmproj"))
    async with small_window(tmp_path, engine) as (served, studio):
        outcome = await ask(served, stream=stream, messages=[shown])
        assert outcome.error is not None
        assert outcome.error["code"] == "upstream_rejected"
        assert outcome.error["message"].startswith("Choose a model that takes pictures")
        assert outcome.status == 400 or stream
        assert len(studio.chats) == 1
        assert (await ask(served, stream=stream)).text == ANSWER
        assert turns_of(studio)[-1].body["messages"] == CHAT


@pytest.mark.parametrize("text", LOST)
async def test_a_model_that_is_lost_again_and_again(tmp_path: Path, text: str) -> None:
    """A second loss is the client's to hear: the model may crash over this very prompt."""
    async with small_window(tmp_path, Engine(Script(Error(text)), repeat=True)) as (served, studio):
        outcome = await ask(served, stream=True, messages=history(1))
        assert outcome.error is not None
        assert outcome.error["code"] == "model_not_loaded"
        assert len(turns_of(studio)) == 2


async def test_a_full_pool_is_not_the_prompts_fault(tmp_path: Path) -> None:
    """What others fill for a moment refuses a small prompt too: it is sent once more, and nothing is learned."""
    async with small_window(tmp_path, Engine(Script(Error(WORDINGS["E"])))) as (served, studio):
        outcome = await ask(served, stream=True, messages=history(1))
        assert (outcome.error, outcome.text) == (None, ANSWER)
        assert (await ask(served, stream=True)).text == ANSWER
        assert turns_of(studio)[-1].body["messages"] == CHAT


def kinds(chunks: list[Body]) -> list[str]:
    """Return what the notices among the chunks are about."""
    return [chunk["elbowroom"]["kind"] for chunk in chunks if "event" in chunk]


async def test_a_prompt_that_is_cut_silently_and_answered_with_a_call(tmp_path: Path) -> None:
    """The call has not reached the client yet: it is made anew by a model that has read everything it was sent."""
    call = Script(ToolCall("look", {"path": "pier"}))
    engine = Engine(call, call)
    tools = [function_spec("look")]
    async with small_window(tmp_path, engine) as (served, studio):
        engine.before = lambda: studio.reload(MODEL, 450)
        body = {"model": RAW_MODEL, "messages": history(5), "tools": tools}
        chunks = chunks_of(await stream_bytes(served, body))
        assert [made["name"] for made in calls_of(chunks)] == ["look"]
        first, second = turns_of(studio)
        assert not first.fitted
        assert second.fitted
        assert kinds(chunks)[0] == "truncated"
        assert kinds(chunks).count("truncated") == 2  # the details, and a line that a chat program shows whole


async def test_a_prompt_that_is_cut_silently_and_answered(tmp_path: Path) -> None:
    """The person is told once, and from the next request on no more is sent than was read."""
    async with small_window(tmp_path) as (served, studio):
        counted = studio.tokenizer.count_tokens
        studio.count_tokens = lambda messages, tools: min(counted(messages, tools), 500)
        first = chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": CHAT}))
        assert kinds(first) == ["truncated", "truncated"]
        second = chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": CHAT}))
        assert "truncated" not in kinds(second)
        last = turns_of(studio)[-1].body
        assert counted(last["messages"], None) <= 500 < counted(CHAT, None)


async def test_many_at_once(tmp_path: Path) -> None:
    """What one request learns the others know: eight that come together all end well."""

    def model(body: Body) -> Script | str:
        tokens = studio.tokenizer.count_tokens(body["messages"], None)
        return Script(Error(wording("C", tokens, REAL, "x"))) if tokens >= REAL else ANSWER

    async with small_window(tmp_path, lambda body: model(body)) as (served, studio):
        outcomes = await asyncio.gather(*(ask(served, stream=True) for _ in range(8)))
        assert [outcome.text for outcome in outcomes] == [ANSWER] * 8
        before = len(turns_of(studio))
        assert (await ask(served, stream=True)).text == ANSWER
        assert len(turns_of(studio)) == before + 1
        assert WINDOW > REAL > (turns_of(studio)[-1].counted_tokens or 0)


async def test_an_engine_that_counts_far_more(tmp_path: Path) -> None:
    """Where it names four times the tokens that were counted here, the history shrinks to fit by that."""

    def model(body: Body) -> Script | str:
        tokens = 4 * studio.tokenizer.count_tokens(body["messages"], None)
        return Script(Error(wording("C", tokens, WINDOW, "x"))) if tokens >= WINDOW else ANSWER

    async with small_window(tmp_path, lambda body: model(body)) as (served, studio):
        assert_recovered(await ask(served, stream=True), studio)
        assert len(turns_of(studio)) == 2


@pytest.mark.parametrize("script", [Script(usage=None), Script(Error(LOST[1])), Script(Cut())])
async def test_a_tight_window_that_is_filled_to_its_edge(tmp_path: Path, script: Script) -> None:
    """Where the system message alone takes most of the window, what stands between goes, and it is answered."""
    window = 12_000
    system = {"role": "system", "content": "pier " * 9250}
    async with small_window(tmp_path, Engine(script), window=window) as (served, studio):
        messages = [system, *history(20)[1:]]
        tokens = studio.tokenizer.count_tokens(messages, None)
        assert 0.9 * window <= tokens <= window - 1000
        outcome = await ask(served, stream=True, messages=messages)
        assert (outcome.error, outcome.text) == (None, ANSWER)
        first, second = turns_of(studio)
        assert first.counted_tokens == tokens
        assert (second.counted_tokens or window) < tokens
        assert second.body["messages"][-1]["content"] == QUESTION
