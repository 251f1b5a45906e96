"""What was hidden goes back to nobody but the caller it belongs to: the same words are no permission."""

from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL
from note_reader import Person, knows, note_reader, prompt_of, reading, toolbox
from serving import serve, settings_for
from spread_variants import spread

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

QUESTION = "What does it say?"
TOKEN = "open-sesame"


async def is_told(
    studio: SimulatedLMStudio, reader: Person, other: Person, question: str = QUESTION
) -> tuple[bool, bool]:
    """Let one read a note and the other say the same words: tell whether the prompts of each then hold the note."""
    studio.enqueue(reading(), "One.", "Fine.", "Fine.")
    await reader.say(question)
    other.history = [*reader.history]
    await other.say("Thanks.")
    by_other = knows(prompt_of(studio))
    await reader.say("Thanks.")
    return knows(prompt_of(studio)), by_other


def by_header(name: str, **more: str) -> dict[str, Any]:
    """Return how a client says who its user is: by our header."""
    return {"headers": {"X-Elbowroom-User": name, **more}}


def by_open_webui(name: str, **more: str) -> dict[str, Any]:
    """Return how a client says who its user is: by Open WebUI's header."""
    return {"headers": {"X-OpenWebUI-User-Id": name, **more}}


def by_body(name: str, **more: str) -> dict[str, Any]:
    """Return how a client says who its user is: in the body."""
    return {"headers": more, "fields": {"user": name}}


def by_nothing(name: str, **more: str) -> dict[str, Any]:
    """Return what a client sends that does not say who its user is."""
    return {"headers": more}


@pytest.mark.parametrize(
    ("named", "chat"), spread([by_header, by_open_webui, by_body], [{}, {"X-Conversation-Id": "chat-1"}])
)
async def test_two_users(tmp_path: Path, named: Any, chat: dict[str, str]) -> None:
    """Two users who say the same words, in a chat of the same name too: each has what was read for it alone."""
    async with note_reader(tmp_path) as (served, studio):
        ada, bob = Person(served, **named("ada", **chat)), Person(served, **named("bob", **chat))
        assert await is_told(studio, ada, bob) == (True, False)


@pytest.mark.parametrize("named", [by_header, by_body])
async def test_a_user_and_nobody(tmp_path: Path, named: Any) -> None:
    """Who gives no name has nothing of a user's, and a user nothing of what was read for nobody."""
    async with note_reader(tmp_path) as (served, studio):
        assert await is_told(studio, Person(served, **named("ada")), Person(served)) == (True, False)
        assert await is_told(studio, Person(served), Person(served, **named("bob"))) == (False, False)


async def test_the_only_user(tmp_path: Path) -> None:
    """Where nobody has ever given a name, whoever asks on this computer is the one user there is."""
    async with note_reader(tmp_path) as (served, studio):
        assert await is_told(studio, Person(served), Person(served)) == (True, True)


async def test_two_without_a_name(tmp_path: Path) -> None:
    """Once a user had a name there is more than one: what was read for nobody, before or since, is nobody's."""
    async with note_reader(tmp_path) as (served, studio):
        before = Person(served)
        studio.enqueue(reading(), "One.", "Hello.")
        await before.say(QUESTION)
        await Person(served, **by_header("ada")).say("Hi.")
        assert await is_told(studio, Person(served), Person(served)) == (False, False)
        studio.enqueue("Fine.")
        await before.say("Thanks.")
        assert not knows(prompt_of(studio))


async def test_through_a_proxy(tmp_path: Path) -> None:
    """What a proxy hands on comes from anybody."""
    async with note_reader(tmp_path) as (served, studio):
        stranger = Person(served, headers={"X-Forwarded-For": "203.0.113.7"})
        assert await is_told(studio, Person(served), stranger) == (True, False)


async def test_the_servers_token(tmp_path: Path) -> None:
    """Whoever has the server's token and gives no name has what was read for such a one, users with names or not."""
    token = {"Authorization": f"Bearer {TOKEN}"}
    environ = {"ELBOWROOM_TEST_TOKEN": TOKEN}
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        settings = settings_for(studio.base_url, agents=AGENT, server='token = "env:ELBOWROOM_TEST_TOKEN"')
        async with serve(tmp_path, settings, toolbox=toolbox, environ=environ) as served:
            ada = Person(served, **by_header("ada", **token))
            assert await is_told(studio, ada, Person(served, headers=token)) == (True, False)
            one, other = Person(served, headers=token), Person(served, headers=token)
            assert await is_told(studio, one, other, "What else does it say?") == (True, True)


async def test_anothers_conversation(tmp_path: Path) -> None:
    """To name another's conversation, by its id or as its client does, opens nothing: it is another owner's."""
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue(reading(), "One.")
        ada = Person(served, **by_header("ada", **{"X-Conversation-Id": "chat-1"}))
        await ada.say(QUESTION)
        for name in ("chat-1", ada.conversation):
            for who in (by_header("bob"), by_body("bob"), by_nothing("")):
                studio.enqueue("Fine.")
                bob = Person(served, history=[*ada.history], **{**who, "headers": {**who["headers"], **named(name)}})
                await bob.say("Thanks.")
                assert not knows(prompt_of(studio))
                assert bob.conversation != ada.conversation


def named(name: str) -> dict[str, str]:
    """Return the header by which a client names its conversation."""
    return {"X-Conversation-Id": name}
