"""`POST /v1/chat/completions/input_tokens`: what it counts, what it says, and that it changes nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from chatting import MODEL, RAW_MODEL, elbowroom_with_studio, forget
from fake_upstream import fake_upstream, says
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel, SimulatedTokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")
HELLO = [{"role": "user", "content": "Hello"}]
Both = tuple[Served, SimulatedLMStudio]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """Elbowroom and a simulated LM Studio with the model loaded."""
    async with elbowroom_with_studio(tmp_path_factory.mktemp("counts")) as pair:
        yield pair


@pytest.fixture
def both(running: Both) -> Both:
    """Take both; the simulated LM Studio knows nothing of the tests before."""
    forget(running[1])
    return running


async def ask(served: Served, body: Any, path: str = "/v1/chat/completions/input_tokens") -> tuple[int, Any]:
    """Ask for a count and return the status and the answer."""
    async with served.http.post(served.url + path, json=body) as response:
        return response.status, await response.json()


async def tokens(served: Served, model: str, messages: list[Any], **fields: Any) -> int:
    """Return the count of a request that is counted."""
    status, answer = await ask(served, {"model": model, "messages": messages, **fields})
    assert status == 200, answer
    number: int = answer["input_tokens"]
    return number


async def test_the_whole_answer(both: Both) -> None:
    """How many, how it was got, how sure that is, and the window of the loaded model."""
    served, studio = both
    assert await ask(served, {"model": RAW_MODEL, "messages": HELLO}) == (
        200,
        {
            "object": "response.input_tokens",
            "input_tokens": SimulatedTokenizer().count_tokens([{**HELLO[0]}]),
            "method": "engine",
            "exact": True,
            "error_bound": 0,
            "window": 32_768,
        },
    )
    assert not studio.chats


@pytest.mark.parametrize("model", [RAW_MODEL, MODEL, "writer", "The Writer"])
async def test_the_count_is_what_the_chat_then_takes(both: Both, model: str) -> None:
    """Under every name of a model: an agent's instructions, the client's tools and its own system message count."""
    served, _ = both
    tool = {"type": "function", "function": {"name": "read_note", "parameters": {"type": "object"}}}
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    for body in ({"messages": HELLO}, {"messages": messages}, {"messages": messages, "tools": [tool]}):
        counted = await tokens(served, model, **body)
        async with served.http.post(served.chat_url, json={"model": model, **body}) as response:
            assert (await response.json())["usage"]["prompt_tokens"] == counted


@pytest.mark.parametrize("path", ["/chat/completions/input_tokens", "/v1/v1/chat/completions/input_tokens/"])
async def test_pasted_addresses(both: Both, path: str) -> None:
    """It is found under whatever people paste as a base address, as chats are."""
    status, _ = await ask(both[0], {"model": RAW_MODEL, "messages": HELLO}, path)
    assert status == 200


WRONG: dict[str, tuple[Any, str | None]] = {
    "no object": ([], None),
    "no model": ({"messages": HELLO}, "model"),
    "no messages": ({"model": "writer"}, "messages"),
    "no message": ({"model": "writer", "messages": []}, "messages"),
    "no role": ({"model": "writer", "messages": [{}]}, "messages[0].role"),
    "a role that is none": ({"model": "writer", "messages": [*HELLO, {"role": "nobody"}]}, "messages[1].role"),
    "tools": ({"model": "writer", "messages": HELLO, "tools": 7}, "tools"),
}


@pytest.mark.parametrize(("body", "param"), WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_request(both: Both, body: Any, param: str | None) -> None:
    """It gets the error that a chat gets, by the field."""
    status, answer = await ask(both[0], body)
    assert (status, answer["error"]["type"], answer["error"]["param"]) == (400, "invalid_request_error", param)
    async with both[0].http.post(both[0].chat_url, json=body) as response:
        assert (response.status, await response.json()) == (status, answer)


ODD: list[dict[str, Any]] = [
    {"role": "user", "content": None},
    {"role": "user", "content": []},
    {"role": "user", "content": ["a", {"type": "text"}, {"type": "nothing"}]},
    {"role": "assistant", "tool_calls": [{}]},
    {"role": "assistant", "tool_calls": [{"function": {"arguments": 7}}]},
    {"role": "tool", "content": "x", "tool_call_id": 7},
    {"role": "user", "content": "\ud800 \x00 <|im_end|>"},
    {"role": "user", "content": "x", "more": {"deep": [1]}},
]


@pytest.mark.parametrize("message", ODD, ids=ascii)
async def test_messages_of_every_shape(both: Both, message: dict[str, Any]) -> None:
    """What a chat takes is counted, whatever it is; there is always a number and never a mistake of ours."""
    assert await tokens(both[0], "writer", [message, *HELLO]) > 0


async def test_messages_of_every_shape_without_the_engine(tmp_path: Path) -> None:
    """The same holds where the engine does not count."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.rpc = False
        for message in ODD:
            assert await tokens(served, "writer", [message, *HELLO]) > 0, message


async def test_a_model_that_is_not_loaded(tmp_path: Path) -> None:
    """No window is promised, and nothing is loaded: not for one count and not for ten."""
    async with elbowroom_with_studio(tmp_path, model=SimulatedModel(MODEL)) as (served, studio):
        for _ in range(10):
            status, answer = await ask(served, {"model": "writer", "messages": HELLO})
            assert (status, answer["window"], answer["exact"]) == (200, None, False)
            assert answer["error_bound"] > 0
        assert not studio.residency.instances
        assert not studio.rpc_calls


async def test_each_instance_has_its_own_window(tmp_path: Path) -> None:
    """The window is that of the instance which the name means, not of the model's first."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        second = studio.load(MODEL, 2048)
        _, answer = await ask(served, {"model": f"lmstudio/{second.id}", "messages": HELLO})
        assert answer["window"] == 2048
        assert answer["method"] == "engine"
        assert studio.rpc_calls[-1].parameter["specifier"]["query"] == {"identifier": second.id}


async def test_a_model_that_is_not_there(both: Both) -> None:
    """404, with the models that there are."""
    for name in ("lmstudio/nothing", "nothing"):
        status, answer = await ask(both[0], {"model": name, "messages": HELLO})
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert MODEL in answer["error"]["message"]


async def test_lm_studio_is_down(tmp_path: Path) -> None:
    """503 in the words that a chat gets."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        await studio.stop()
        status, answer = await ask(served, {"model": RAW_MODEL, "messages": HELLO})
        assert (status, answer["error"]["code"]) == (503, "upstream_unreachable")


async def test_an_unmanaged_provider(tmp_path: Path) -> None:
    """An unmanaged provider's model is counted too, even one that its server does not list."""
    upstream = {"/v1/models": says({"data": []}), "/v1/chat/completions/input_tokens": says({"input_tokens": 5})}
    async with fake_upstream(upstream) as fake:
        async with serve(tmp_path, settings_for(fake.url, kind="openai")) as served:
            status, answer = await ask(served, {"model": "openai/unlisted", "messages": HELLO})
    assert (status, answer["input_tokens"], answer["method"], answer["window"]) == (200, 5, "engine", None)


async def test_ollamas_short_names(tmp_path: Path) -> None:
    """A name that Ollama knows without its tag is counted under it, as it is in chats."""
    tags = {"/api/tags": says({"models": [{"name": "llama3:latest"}]}), "/api/ps": says({"models": []})}
    async with fake_upstream(tags) as fake, serve(tmp_path, settings_for(fake.url, kind="ollama")) as served:
        status, answer = await ask(served, {"model": "ollama/llama3", "messages": HELLO})
        assert (status, answer["exact"]) == (200, False)


async def test_other_methods(both: Both) -> None:
    """Only POST asks for a count."""
    served, _ = both
    async with served.http.get(f"{served.chat_url}/input_tokens") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
