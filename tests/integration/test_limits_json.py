"""Bodies that parsers disagree on: each gets one clear 400, or goes upstream as one meaning."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fake_upstream import FakeUpstream, completion, fake_upstream, says
from serving import Served, serve, settings_for

from elbowroom.server import chat as chat_routes

pytestmark = pytest.mark.asyncio(loop_scope="module")
JSON = {"Content-Type": "application/json"}
CHAT = "/v1/chat/completions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, FakeUpstream]]:
    """Run a generic upstream that answers every chat, and elbowroom in front of it, passing through."""
    async with fake_upstream({CHAT: says(completion()), "/v1/models": says({"data": [{"id": "m"}]})}) as upstream:
        async with serve(tmp_path_factory.mktemp("json"), settings_for(upstream.url, kind="openai")) as served:
            yield served, upstream


@pytest.fixture
def upstream(both: tuple[Served, FakeUpstream]) -> FakeUpstream:
    """Take the upstream, which has not been asked yet."""
    both[1].asked.clear()
    return both[1]


@pytest.fixture
def served(both: tuple[Served, FakeUpstream]) -> Served:
    """Take the elbowroom."""
    return both[0]


async def post(served: Served, body: bytes) -> tuple[int, Any]:
    """Send a body as it stands and return the status and the parsed answer."""
    async with served.http.post(served.chat_url, data=body, headers=JSON) as response:
        return response.status, await response.json()


def chat(extra: str) -> bytes:
    """Return a chat request with one more field, given as JSON text."""
    return f'{{"model": "openai/m", "messages": [{{"role": "user", "content": "Hi"}}], {extra}}}'.encode()


def nested(depth: int, *, objects: bool = False) -> str:
    """Return JSON of this depth."""
    return '{"a":' * depth + "1" + "}" * depth if objects else "[" * depth + "]" * depth


@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("depth", [1, 100])
async def test_deep_json_within_reason_goes_upstream(
    served: Served, upstream: FakeUpstream, depth: int, *, objects: bool
) -> None:
    """A schema a hundred levels deep arrives as it was."""
    assert (await post(served, chat(f'"x": {nested(depth, objects=objects)}')))[0] == 200
    assert upstream.asked[-1].json["x"] == json.loads(nested(depth, objects=objects))


@pytest.mark.threat("odd JSON", "400 that names the limit")
@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("depth", [150, 250, 990, 1000, 1100, 100_000])
async def test_too_deep_json_is_a_400_and_no_more(
    served: Served, upstream: FakeUpstream, depth: int, *, objects: bool
) -> None:
    """However deep it goes, the answer names the limit, nothing goes upstream, and the server goes on."""
    for body in (chat(f'"x": {nested(depth, objects=objects)}'), nested(depth, objects=objects).encode()):
        status, answer = await post(served, body)
        assert status == 400
        assert "128 levels" in answer["error"]["message"]
    assert not upstream.asked
    assert (await post(served, chat('"x": 1')))[0] == 200


async def test_unclosed_depth_is_a_400(served: Served) -> None:
    """A hundred thousand opening brackets and nothing else."""
    assert (await post(served, b"[" * 100_000))[0] == 400


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"{}{}", "Extra data"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'"text"', "object"),
        (b"data: {}", "Expecting value"),
        (b"{'model': 'm'}", "Expecting property name"),
        (chat('"temperature": NaN'), "NaN"),
        (chat('"temperature": Infinity'), "Infinity"),
        (chat('"temperature": -Infinity'), "-Infinity"),
        (chat('"temperature": 1e400'), "1e400"),
        (chat('"temperature": -1e400'), "-1e400"),
        (chat('"seed": ' + "9" * 5000), "too many digits"),
        (chat('"x": 1').decode().encode("utf-16"), "UTF-8"),
        (chat('"x": 1').decode().encode("utf-32"), "UTF-8"),
        (chat('"x": "\u00e9"').decode().encode("latin-1"), "UTF-8"),
        (chat('"x": 1') + b"\xff", "UTF-8"),
        (b"\x00", "Expecting value"),
        (b'{"model": "a\x00b"}', "control character"),
    ],
)
async def test_what_is_no_json_is_a_400(served: Served, upstream: FakeUpstream, body: bytes, says: str) -> None:
    """Each mistake is named, without a word about the program's insides, and nothing goes upstream."""
    status, answer = await post(served, body)
    assert status == 400
    assert says in answer["error"]["message"]
    assert "sys." not in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"
    assert not upstream.asked


async def test_a_byte_order_mark_is_skipped(served: Served) -> None:
    """Programs on Windows write one in front of UTF-8."""
    assert (await post(served, b"\xef\xbb\xbf" + chat('"x": 1')))[0] == 200


@pytest.mark.threat("odd JSON", "what is checked is what is sent")
async def test_of_duplicate_keys_the_last_counts_everywhere(served: Served, upstream: FakeUpstream) -> None:
    """What is checked is what goes upstream: the body is written anew, with each key once."""
    body = b'{"model": "no/such", "stream": true, "messages": [], "temperature": 9,' + chat('"stream": false')[1:]
    assert (await post(served, body))[0] == 200
    assert upstream.asked[-1].raw.count(b'"model"') == 1
    assert upstream.asked[-1].json["stream"] is False


@pytest.mark.parametrize(
    "text", ["\\ud800", "a\\udfffb", "\\ud83d\\ude00", "\\u0000", "\\u2028\\u2029", "\\r\\n\\ndata: x"]
)
async def test_strange_characters_arrive_as_they_were(served: Served, upstream: FakeUpstream, text: str) -> None:
    """Whole pairs, NUL and line separators are text like any other; U+FFFD stands for a lone surrogate."""
    body = f'{{"model": "openai/m", "messages": [{{"role": "user", "content": "{text}"}}]}}'
    assert (await post(served, body.encode()))[0] == 200
    sent = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert upstream.asked[-1].json["messages"][0]["content"] == sent


@pytest.mark.parametrize("name", ["\\ud800", "x\\n\\ndata: [DONE]\\n\\n", "\\u2028", "\\u0000", "a" * 5000])
async def test_a_strange_model_name_is_a_404(served: Served, name: str) -> None:
    """The name comes back in the error as JSON, whatever it is."""
    body = f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Hi"}}], "stream": true}}'
    status, answer = await post(served, body.encode())
    assert status == 404
    assert answer["error"]["code"] == "model_not_found"


@pytest.mark.fault("huge body", "first", "413; others are answered")
@pytest.mark.long
@pytest.mark.parametrize(("value", "count"), [(b"[]", 5_000_000), (b'{"role":"user","content":"a"}', 1_000_000)])
async def test_bodies_of_many_values_hold_nobody_up(served: Served, value: bytes, count: int) -> None:
    """Five million lists or a million messages are a 413, and others are answered while they are looked at."""
    body = b'{"model": "openai/m", "messages": [' + b",".join([value] * count) + b"]}"
    longest, done = 0.0, asyncio.Event()

    async def ask_all_the_while() -> None:
        nonlocal longest
        while not done.is_set():
            start = time.perf_counter()
            async with served.http.get(f"{served.url}/health") as response:
                assert response.status == 200
            longest = max(longest, time.perf_counter() - start)

    asking = asyncio.create_task(ask_all_the_while())
    async with served.http.post(served.chat_url, data=io.BytesIO(body), headers=JSON) as response:
        assert response.status == 413
        assert "300,000 values" in (await response.json())["error"]["message"]
    done.set()
    await asking
    assert longest < 1.0


@pytest.mark.parametrize(
    ("field", "item", "most"), [("messages", {"role": "user", "content": "a"}, 20_000), ("tools", {"type": "x"}, 2_000)]
)
async def test_more_messages_or_tools_than_any_window_holds_are_a_413(
    served: Served, upstream: FakeUpstream, field: str, item: dict[str, Any], most: int
) -> None:
    """The sentence names how many there are and how many may be; one less goes upstream."""
    answer: Any = None
    for count, expected in ((most, 200), (most + 1, 413)):
        body = {"model": "openai/m", "messages": [{"role": "user", "content": "Hi"}], field: [item] * count}
        status, answer = await post(served, json.dumps(body).encode())
        assert status == expected
    assert answer["error"]["message"] == f"The request has {most + 1:,} {field}: elbowroom takes at most {most:,}."
    assert answer["error"]["param"] == field
    assert len(upstream.asked) == 1


@pytest.mark.fault("run of a million spaces", "first", "a panic is a 500 with a sentence")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_panic_of_a_library_is_a_500_with_a_sentence(
    served: Served, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """A panic is no Exception, and used to end the connection without an answer."""
    panic = type("PanicException", (BaseException,), {})

    async def panics(*_: object, **__: object) -> None:
        raise panic("StackOverflow")

    monkeypatch.setattr(chat_routes, "answer", panics)
    monkeypatch.setattr(chat_routes, "relay", panics)
    monkeypatch.setattr(chat_routes, "relay_stream", panics)
    status, answer = await post(served, chat(f'"stream": {str(stream).lower()}'))
    assert status == 500
    assert "elbowroom made a mistake" in answer["error"]["message"]


async def test_numbers_arrive_as_they_were(served: Served, upstream: FakeUpstream) -> None:
    """A large integer keeps every digit, a small float its value."""
    seed = 2**63 + 12345678901234567890
    assert (await post(served, chat(f'"seed": {seed}, "top_p": 0.1, "min_p": 1e-300')))[0] == 200
    asked = upstream.asked[-1].json
    assert (asked["seed"], asked["top_p"], asked["min_p"]) == (seed, 0.1, 1e-300)
