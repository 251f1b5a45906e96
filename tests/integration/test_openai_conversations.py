"""OpenAI's conversations: made, described and filled by items, and the same conversations that the page shows."""

import asyncio
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import RAW_MODEL, elbowroom_with_studio
from pair_fixtures import Pair
from request_checks import assert_fits
from responding import respond, said_to, text_in
from serving import Served, serve, settings_for
from small_window import QUESTION, history, small_window, turns_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
LIBRARY = {"X-Stainless-Lang": "python"}
Json = dict[str, Any]


async def ask(served: Served, path: str = "", method: str = "POST", owner: str = "", **body: Any) -> Json:
    """Return the parsed body of an answer below /v1/conversations, with its status as `status_code`."""
    headers = {"X-Elbowroom-User": owner} if owner else {}
    url, sent = f"{served.url}/v1/conversations{path}", body if method == "POST" else None
    async with served.http.request(method, url, json=sent, headers=headers) as response:
        return {**await response.json(), "status_code": response.status}


def user(text: str) -> Json:
    """Return a user's message as an item."""
    return {"type": "message", "role": "user", "content": text}


def texts_in(listed: Json) -> list[str]:
    """Return the texts of the messages of a list of items."""
    return [part["text"] for item in listed["data"] if item["type"] == "message" for part in item["content"]]


@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_responses_belong_to_a_conversation(tmp_path: Path, model: str) -> None:
    """What was added and what was answered comes before each next input, and stands in one conversation of the page."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.")
        made = await ask(served, items=[user("My boat is Anna.")], metadata={"topic": "boats"})
        assert (made["object"], made["metadata"]) == ("conversation", {"topic": "boats"})
        first = await respond(served, "First?", model=model, conversation=made["id"])
        assert first["conversation"] == {"id": made["id"]}
        await respond(served, "Second?", model=model, conversation={"id": made["id"]})
        assert said_to(studio.chats[1].body)[-4:] == [
            *said_to(studio.chats[0].body)[-2:],
            ("assistant", "One."),
            ("user", "Second?"),
        ]
        assert said_to(studio.chats[0].body)[0] == ("user", "My boat is Anna.")
        items = await ask(served, f"/{made['id']}/items?order=asc", "GET")
        assert texts_in(items) == ["My boat is Anna.", "First?", "One.", "Second?", "Two."]
        assert items["data"][2]["id"] == first["output"][0]["id"]
        shown = await ask(served, f"/{made['id']}", "GET")
        assert (shown["id"], shown["metadata"]["topic"]) == (made["id"], "boats")
        assert shown["created_at"] == shown["created"]
        listed = await ask(served, "", "GET")
        assert [(row["id"], row["title"]) for row in listed["data"]] == [(made["id"], "My boat is Anna.")]


async def test_items_are_messages_of_the_conversation(pair: Pair) -> None:
    """Items that are added later stand on the page and before the next input, calls with their results too."""
    served, studio = pair
    studio.enqueue("One.", "Fine.")
    made = await ask(served)
    await respond(served, "First?", conversation=made["id"])
    added = await ask(
        served,
        f"/{made['id']}/items",
        items=[
            user("Look it up."),
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "oats"},
        ],
    )
    assert [item["type"] for item in added["data"]] == ["message", "function_call", "function_call_output"]
    assert added["last_id"] == added["data"][-1]["id"]
    for item in added["data"]:
        assert await ask(served, f"/{made['id']}/items/{item['id']}", "GET") == {**item, "status_code": 200}
    async with served.http.get(f"{served.url}/v1/conversations/{made['id']}/messages") as response:
        roles = [one["message"]["role"] for one in (await response.json())["data"]]
    assert roles == ["user", "assistant", "user", "assistant", "tool"]
    await respond(served, "And?", conversation=made["id"])
    assert [role for role, _ in said_to(studio.chats[1].body)] == [*roles, "user"]


async def test_items_added_at_once_are_all_kept(pair: Pair) -> None:
    """Each of several requests that add to a conversation at the same time gets its own items, and none is lost."""
    served, _ = pair
    path = f"/{(await ask(served, items=[user('Begin.')]))['id']}/items"
    said = [f"Message {number}." for number in range(5)]
    added = await asyncio.gather(*(ask(served, path, items=[user(text)]) for text in said))
    assert [texts_in(one) for one in added] == [[text] for text in said]
    kept = texts_in(await ask(served, f"{path}?order=asc", "GET"))
    assert kept[0] == "Begin."
    assert sorted(kept[1:]) == said


async def test_items_without_a_message_are_refused(pair: Pair) -> None:
    """Thoughts by themselves are nothing to add, to an empty conversation or to another; the answer says so."""
    thoughts = {"type": "reasoning", "id": "rs_1", "summary": []}
    served, _ = pair
    made = [await ask(served, items=items) for items in ([], [user("Begin.")])]
    for each in made:
        refused = await ask(served, f"/{each['id']}/items", items=[thoughts])
        assert (refused["status_code"], refused["error"]["param"]) == (400, "items")
    refused = await ask(served, f"/{made[0]['id']}/items", items=[])
    assert refused["error"]["message"] == "items has to be a list of 1 to 20 items."


async def test_metadata_is_replaced_and_lasts(tmp_path: Path) -> None:
    """An update replaces all metadata; it is there after a restart, and a deleted conversation is gone."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        made = await ask(served, metadata={"a": "1", "b": "2"})
        changed = await ask(served, f"/{made['id']}", metadata={"c": "é"})
        assert (changed["id"], changed["metadata"]) == (made["id"], {"c": "é"})
        settings = settings_for(studio.base_url)
    async with serve(tmp_path, settings) as served:
        assert (await ask(served, f"/{made['id']}", "GET"))["metadata"] == {"c": "é"}
        gone = await ask(served, f"/{made['id']}", "DELETE")
        assert (gone["object"], gone["deleted"]) == ("conversation.deleted", True)
        assert (await ask(served, f"/{made['id']}", "GET"))["status_code"] == 404
        refused = await ask(served, f"/{made['id']}", metadata={})
        assert (refused["status_code"], refused["error"]["code"]) == (404, "conversation_not_found")


async def test_deleted_item(pair: Pair) -> None:
    """A deleted message is gone from the list, the page and the next prompt; what came after it stays."""
    served, studio = pair
    studio.enqueue("Fine.", "Good.")
    made = await ask(served, items=[user("One"), user("My PIN is 8417."), user("Three")])
    secret = (await ask(served, f"/{made['id']}/items?order=asc", "GET"))["data"][1]
    left = await ask(served, f"/{made['id']}/items/{secret['id']}", "DELETE")
    assert (left["object"], left["id"]) == ("conversation", made["id"])
    assert texts_in(await ask(served, f"/{made['id']}/items?order=asc", "GET")) == ["One", "Three"]
    first = await respond(served, "Well?", conversation=made["id"])
    assert "8417" not in str(studio.chats[0].body)
    async with served.http.get(f"{served.url}/v1/conversations/{made['id']}/messages?branch=all") as response:
        assert "8417" not in await response.text()
    await respond(served, "And?", conversation=made["id"])
    refused = await ask(served, f"/{made['id']}/items/{first['output'][0]['id']}", "DELETE")
    assert (refused["status_code"], refused["error"]["code"]) == (409, "item_in_use")
    last = (await ask(served, f"/{made['id']}/items", "GET"))["data"][0]
    await ask(served, f"/{made['id']}/items/{last['id']}", "DELETE")
    assert texts_in(await ask(served, f"/{made['id']}/items?order=asc", "GET"))[-2:] == ["Fine.", "And?"]


@pytest.mark.parametrize("knows_first_id", [True, False])
async def test_deleted_item_is_gone_from_all_branches(pair: Pair, knows_first_id: bool) -> None:
    """Each model that answers has a branch of its own: what is deleted is in none of them, by whichever of its ids."""
    served, studio = pair
    studio.enqueue("One.", "Two.", "Three.")
    made = await ask(served, items=[user("Hello"), user("My PIN is 8417."), user("Hello")])
    ids = [item["id"] for item in (await ask(served, f"/{made['id']}/items?order=asc", "GET"))["data"]]
    await respond(served, "Well?", conversation=made["id"])
    await respond(served, "And?", conversation=made["id"], model=RAW_MODEL)
    if not knows_first_id:
        ids = [item["id"] for item in (await ask(served, f"/{made['id']}/items?order=asc", "GET"))["data"]]
    await ask(served, f"/{made['id']}/items/{ids[1]}", "DELETE")
    async with served.http.get(f"{served.url}/v1/conversations/{made['id']}/messages?branch=all") as response:
        assert "8417" not in await response.text()
    await ask(served, f"/{made['id']}/items/{ids[2]}", "DELETE")
    texts = texts_in(await ask(served, f"/{made['id']}/items?order=asc", "GET"))
    assert texts == ["Hello", "Well?", "One.", "And?", "Two."]
    await respond(served, "Last?", conversation=made["id"], model=RAW_MODEL)
    assert [text for _, text in said_to(studio.chats[2].body)] == [*texts, "Last?"]


async def test_conversation_of_a_chat_goes_on_here(tmp_path: Path) -> None:
    """What a chat has begun is the same resource: its items are there, and a response goes on with it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.")
        body = {"model": "writer", "messages": [{"role": "user", "content": "First?"}]}
        async with served.http.post(served.chat_url, json=body) as response:
            named = response.headers["X-Conversation-Id"]
        answer = await respond(served, "Second?", conversation=named)
        assert text_in(answer) == "Two."
        assert [text for _, text in said_to(studio.chats[1].body)] == ["First?", "One.", "Second?"]
        items = await ask(served, f"/{named}/items?order=asc&limit=3", "GET")
        assert (texts_in(items), items["has_more"]) == (["First?", "One.", "Second?"], True)
        assert len((await ask(served, "", "GET"))["data"]) == 1
        shown = await ask(served, f"/{named}", "GET")
        assert "created_at" not in shown
        async with served.http.get(f"{served.url}/v1/conversations/{named}", headers=LIBRARY) as response:
            described = await response.json()
        assert {**described, "status_code": 200} == {**shown, "created_at": shown["created"], "metadata": {}}


async def test_long_conversation_is_compacted_once(tmp_path: Path) -> None:
    """A conversation that outgrows the window is compacted; every prompt fits, and nothing kept is lost."""
    async with small_window(tmp_path) as (served, studio):
        asked = history(12)
        made = await ask(served, items=asked[:20])
        await ask(served, f"/{made['id']}/items", items=asked[20:-1])
        for _ in range(3):
            await respond(served, QUESTION, conversation=made["id"])
            assert_fits(turns_of(studio)[-1])
        items = await ask(served, f"/{made['id']}/items?order=asc&limit=100", "GET")
        assert len(items["data"]) == len(asked) - 1 + 6


@pytest.mark.threat("other people's conversations", "nor their items")
async def test_of_another_person(tmp_path: Path) -> None:
    """To all others a conversation is not there: not to read, fill, describe or go on with."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        made = await ask(served, owner="ada", items=[user("Secret.")])
        (item,) = (await ask(served, f"/{made['id']}/items", "GET", "ada"))["data"]
        paths = [("", "POST"), ("/items", "GET"), ("/items", "POST"), (f"/items/{item['id']}", "GET")]
        for path, method in (*paths, (f"/items/{item['id']}", "DELETE")):
            refused = await ask(served, f"/{made['id']}{path}", method, "bob", items=[user("Hi")], metadata={})
            assert refused["status_code"] == 404, path
        url = f"{served.url}/v1/responses"
        body = {"model": "writer", "input": "a", "conversation": made["id"]}
        async with served.http.post(url, json=body, headers={"X-Elbowroom-User": "bob"}) as response:
            assert response.status == 404
        assert studio.chats == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [user("a")] * 21}, "items"),
        ({"items": "a"}, "items"),
        ({"items": [{"type": "image"}]}, "input[0].type"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": []}, "metadata"),
        ({"metadata": ""}, "metadata"),
        ({"items": {}}, "items"),
        ({"items": 0}, "items"),
    ],
)
async def test_wrong_fields(pair: Pair, body: Json, param: str) -> None:
    """What has another form is refused by its name, and nothing is made."""
    served, _ = pair
    before = await ask(served, "", "GET")
    refused = await ask(served, **body)
    assert (refused["status_code"], refused["error"]["param"]) == (400, param)
    assert await ask(served, "", "GET") == before


async def test_conversation_and_response_together(pair: Pair) -> None:
    """A request names where it goes on once."""
    served, _ = pair
    url = f"{served.url}/v1/responses"
    body = {"model": "writer", "input": "a", "conversation": "conv_1", "previous_response_id": "resp_1"}
    async with served.http.post(url, json=body) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "previous_response_id")
