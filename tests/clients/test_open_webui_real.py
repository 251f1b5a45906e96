"""The real Open WebUI, in a real browser, in front of elbowroom: nothing of a chat is lost, and the person sees why.

Each chat is short, in a small window of a simulated engine, which answers "say 50 words" with so many words.
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, eventually
from command_line import running
from open_webui import Installed, Person, free_port, open_webui, person
from patient_counting import wait_for_counts
from scripted_pruner import is_prune_order, rest_of, text_of, valid_plan
from serving import serve, settings_for

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer, ToolCall, WaitFor
from elbowroom.demo.journal import RecordedRequest
from elbowroom.server.state import Timing

pytestmark = pytest.mark.long
Body = dict[str, Any]
ASKED = re.compile(r"say (\d+) (plain )?words")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLAIN = ("number", "boats", "left", "that", "pier", "today")
PIECE = re.compile(r"<\|\w+\|>|\s?[^\W\d_]{1,12}|\d{1,3}|\s+|[^\w\s]+|_")
LINE = 95
"""Characters of a status that Open WebUI shows."""


class JsonTokenizer(SimulatedTokenizer):
    """Counts the 36 tools as real vocabularies do, in which runs of signs and most words are one token."""

    def split(self, text: str) -> list[str]:
        """Cut text into the pieces that count as one token each."""
        return PIECE.findall(text)


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def spoken(body: Body, role: str) -> list[str]:
    """Return what was said in one role."""
    return [text_of(message) for message in body["messages"] if message["role"] == role]


def words(count: int, *, are_plain: bool = False) -> str:
    """Return so many words in one line: w1, w2, w3, or plain ones, of which most are a token each."""
    if not are_plain:
        return " ".join(f"w{number}" for number in range(1, count + 1))
    told = (f"{DIGITS[n // 100]}{DIGITS[n // 10 % 10]}{DIGITS[n % 10]}" for n in range(count // len(PLAIN)))
    return " ".join(" ".join((first, *PLAIN[1:])) for first in told)


def wanted(body: Body) -> str:
    """Return the words that the last order in what the model reads asks for; 12 where there is none."""
    found = ASKED.findall("\n".join(spoken(body, "user")))
    count, plain = found[-1] if found else ("12", "")
    return words(int(count), are_plain=bool(plain))


def answers(body: Body) -> Script | str:
    """Say as many numbered words as are wanted, or what Open WebUI's own orders ask for."""
    if is_prune_order(body):
        return valid_plan(body)
    if text_of(body["messages"][-1]).startswith("### Task:") and "chat_history" in text_of(body["messages"][-1]):
        return '{"title": "Numbers", "tags": ["Numbers"], "follow_ups": []}'
    whole = wanted(body)
    is_first = ASKED.search(spoken(body, "user")[-1]) is not None or not spoken(body, "assistant")
    return whole if is_first else rest_of(whole, spoken(body, "assistant")[-1]).lstrip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Run one Open WebUI for all."""
    with open_webui(tmp_path_factory.mktemp("open-webui")) as there:
        yield there


@asynccontextmanager
async def at_work(
    installed: Installed,
    folder: Path,
    name: str,
    *,
    window: int,
    slots: int = 4,
    has_tools: bool = False,
    agents: str = AGENT,
    tokenizer: SimulatedTokenizer | None = None,
    says: Callable[[Body], Script | str] = answers,
) -> AsyncIterator[tuple[Person, SimulatedLMStudio]]:
    """Connect Open WebUI to an elbowroom with this window, and open a browser on it; its 36 tools are off or on."""
    model = SimulatedModel(MODEL, loaded_context_length=window, parallel=slots, tokenizer=tokenizer)
    async with SimulatedLMStudio([model], on_request=says) as studio:
        settings = settings_for(studio.base_url, agents=agents)
        async with serve(folder, settings, timing=Timing(quiet=0.1)) as served:
            await installed.connect_to(served.url)
            await installed.give_tools(are_on=has_tools)
            async with person(installed, name) as someone:
                yield someone, studio


def turns(studio: SimulatedLMStudio) -> list[RecordedRequest]:
    """Return the requests for answers of chats."""
    return [
        chat
        for chat in studio.chats
        if not is_prune_order(chat.body) and chat.body["max_tokens"] != 1 and "chat_history" not in str(chat.body)
    ]


async def test_a_killed_server(installed: Installed, tmp_path: Path) -> None:
    """Open WebUI drops what had come of the answer; the model reads it with the next message, which says so."""
    port, data = str(free_port()), {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)], on_request=answers) as studio:
        settings = tmp_path / "settings.toml"
        settings.write_text(settings_for(studio.base_url, agents=AGENT), encoding="utf-8")
        command = ("serve", "--config", str(settings), "--port", port)
        async with person(installed, "killed") as ada:
            async with running(tmp_path, *command, variables=data) as program:
                await installed.connect_to(await program.address())
                await ada.opens("writer")
                studio.tokens_per_second = 60
                await ada.sends("Please say 2000 words.")
                await ada.page.get_by_text(re.compile(r"\bw100\b")).wait_for()
                await asyncio.sleep(1)
                await program.end(signal.SIGKILL)
            await ada.shot("broken")
            studio.tokens_per_second = 0
            async with running(tmp_path, *command, variables=data) as program:
                await program.address()
                await ada.reloads()
                await ada.says("Go on, say 5 words.")
                await ada.shot("kept")
                sent = turns(studio)[-1].body["messages"]
                assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
                assert len(text_of(sent[2]).split()) > 90
                [line] = [line for line in await ada.lines() if "broke off is kept" in line]
                assert len(line) <= LINE


async def test_titles_and_tags_are_short(installed: Installed, tmp_path: Path) -> None:
    """They are made from the ends of the chat, after the answer, and the engine has the chat in its cache then."""
    async with at_work(installed, tmp_path, "tasks", window=32_768, slots=1) as (ada, studio):
        await ada.opens("writer")
        await ada.says("Please say 3000 words.")
        await eventually(lambda: studio.chats and studio.chats[-1].body["max_tokens"] == 1, "it is not read again", 30)
        tasks = [chat for chat in studio.chats if "chat_history" in str(chat.body)]
        await ada.shot("tasks")
        assert tasks
        answer = turns(studio)[0].counted_tokens
        assert answer is not None
        for task in tasks:
            assert task.counted_tokens is not None
            assert task.counted_tokens < 1500
        assert studio.chats.index(turns(studio)[0]) < studio.chats.index(tasks[0])


async def test_a_temporary_chat(installed: Installed, tmp_path: Path) -> None:
    """It is answered, and no file of elbowroom has a word of it."""
    async with at_work(installed, tmp_path, "temporary", window=32_768) as (ada, _):
        await ada.opens("writer", is_temporary=True)
        assert "w5" in await ada.says("Marzipan, say 5 words.")
        await ada.says("Marzipan again, say 5 words.")
        await ada.shot("temporary")
    files = await asyncio.to_thread(lambda: [path for path in tmp_path.rglob("*") if path.is_file()])
    assert not [path for path in files if b"arzipan" in path.read_bytes()]


async def test_the_provider_is_down(installed: Installed, tmp_path: Path) -> None:
    """The chat stays with its model, and the error says what to start."""
    model = SimulatedModel(MODEL, loaded_context_length=32_768)
    async with person(installed, "down") as ada:
        async with SimulatedLMStudio([model], on_request=answers) as studio:
            base_url = studio.base_url
            async with serve(tmp_path, settings_for(base_url, agents=AGENT)) as served:
                await installed.connect_to(served.url)
                await ada.opens(RAW_MODEL)
                assert "w5" in await ada.says("Please say 5 words.")
        async with serve(tmp_path, settings_for(base_url, agents=AGENT)) as served:
            await installed.connect_to(served.url)
            await ada.reloads()
            await ada.says("And 5 more.")
            await ada.shot("down")
            message = await ada.stored()
            assert message["model"] == RAW_MODEL
            assert "Start its server" in str(message["error"])


async def test_a_small_result_is_left_alone(installed: Installed, tmp_path: Path) -> None:
    """With 36 tools that fill most of the window, a result of a hundred tokens reaches the model whole."""
    async with at_work(installed, tmp_path, "tools", window=14_000, has_tools=True) as (ada, studio):
        studio.enqueue(Script("Let me look.", ToolCall("get_current_timestamp", {})), when=lambda body: "tools" in body)
        await ada.opens(RAW_MODEL)
        await ada.says("What time is it?")
        await ada.shot("tools")
        results = [message for message in turns(studio)[-1].body["messages"] if message["role"] == "tool"]
        assert len(results) == 1
        assert "current_timestamp" in text_of(results[0])


async def test_a_compaction_in_the_background(installed: Installed, tmp_path: Path) -> None:
    """After an answer that fills the window nobody waits: the next turn says what was summarised, in one line."""
    async with at_work(installed, tmp_path, "background", window=8192) as (ada, studio):
        await ada.opens(RAW_MODEL)
        while not any(is_prune_order(chat.body) for chat in studio.chats):
            await ada.says("Please say 300 words.")
            await asyncio.sleep(2)
        orders = sum(is_prune_order(chat.body) for chat in studio.chats)
        await ada.says("Please say 5 words.")
        await ada.shot("background")
        assert sum(is_prune_order(chat.body) for chat in studio.chats) == orders
        assert [line for line in await ada.lines() if line.startswith("Earlier part summarised while you read")]


@pytest.mark.timeout(300)
async def test_a_way_to_the_compaction(installed: Installed, tmp_path: Path) -> None:
    """Below the answer a source leads to the compaction on elbowroom's page, and no other host is asked on the way.

    An answer with signs that Open WebUI would take for references has none, and is shown to its last sign.
    """
    async with at_work(installed, tmp_path, "source", window=8192) as (ada, studio):
        asked: list[str] = []
        ada.page.context.on("request", lambda request: asked.append(request.url))
        await ada.opens(RAW_MODEL)
        while not any(is_prune_order(chat.body) for chat in studio.chats):
            await ada.says("Please say 300 words.")
            await asyncio.sleep(2)
        await ada.says("Please say 5 words.")
        await ada.page.get_by_role("button", name="Toggle 1 source").click()
        await ada.page.get_by_role("button", name=re.compile("View source: 1 elbowroom: .* tokens freed")).click()
        await ada.shot("source")
        links = ada.page.get_by_role("dialog").get_by_role("link")
        address = f"{installed.elbowroom}/#/conversations/"
        found = [str(await link.get_attribute("href")) for link in await links.all()]
        assert len(found) == 3
        assert all(link.startswith(address) for link in found), found
        async with ada.page.context.expect_page() as opening:
            await links.first.click()
        shown = await opening.value
        await shown.locator(".divider").get_by_text("tokens freed").first.wait_for()
        await ada.shot("page")
        assert (await ada.row())["id"] in shown.url
        assert all(url.startswith((installed.url, installed.elbowroom, "data:", "blob:")) for url in asked), asked
        assert (await ada.stored())["sources"]
        await ada.page.keyboard.press("Escape")
        while sum(is_prune_order(chat.body) for chat in studio.chats) < 2:
            await ada.says("Please say 300 words.")
            await asyncio.sleep(2)
        studio.enqueue("As [1] says, and [2].", when=lambda body: "sources" in str(body["messages"][-1]))
        assert "As [1] says, and [2]." in await ada.says("Name your sources.")
        assert any(line.startswith("Earlier part summarised") for line in await ada.lines())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("window", "has_tools"), [(8192, False), (4096, False), (8192, True)])
async def test_an_answer_longer_than_the_window(
    installed: Installed, tmp_path: Path, window: int, *, has_tools: bool
) -> None:
    """It arrives to the last word, each once, without *Continue*; also beside 36 tools that leave little room."""
    name, tokenizer = f"long-{window}-{'tools' if has_tools else 'alone'}", JsonTokenizer()
    async with at_work(installed, tmp_path, name, window=window, has_tools=has_tools, tokenizer=tokenizer) as (
        ada,
        studio,
    ):
        await ada.opens(RAW_MODEL)
        await ada.says(f"Please say 2400 {'plain ' if has_tools else ''}words.")
        await ada.shot("whole")
        said = (await ada.stored())["content"]
        assert said.split() == words(2400, are_plain=has_tools).split()
        _, *restarted = turns(studio)
        assert 1 <= len(restarted) <= 3
        assert all(turn.completion_tokens > 700 for turn in restarted[:-1])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("count", "restarts"), [(900, 1), (1700, 2), (2300, 3)])
async def test_an_earlier_request_in_a_summary(installed: Installed, tmp_path: Path, count: int, restarts: int) -> None:
    """A model that follows the last order it reads goes on with its answer, however often that was stopped.

    What is summarised stands before the request that is answered, and says that requests in it are dealt with.
    """
    request = f"Now please say {count} words."
    async with at_work(installed, tmp_path, f"order-{restarts}", window=4096) as (ada, studio):
        await ada.opens(RAW_MODEL)
        await ada.says("Hello, please say 20 words.")
        await ada.says("Please say 500 words.")
        before = len(turns(studio))
        await ada.says(request)
        await ada.shot("order")
        assert (await ada.stored())["content"].split() == words(count).split()
        _, *restarted = turns(studio)[before:]
        assert len(restarted) == restarts
        for turn in restarted:
            texts = [text_of(message) for message in turn.body["messages"]]
            [place] = [at for at, text in enumerate(texts) if text.startswith("<elbowroom-summary>")]
            assert "; its requests are dealt with." in texts[place]
            assert place < texts.index(request)
            assert turn is not restarted[0] or "say 500 words" in texts[place]


async def test_a_large_file(installed: Installed, tmp_path: Path) -> None:
    """A file that is larger than the window does not end the chat: this message is answered, and the next one too."""
    file = tmp_path / "garden.txt"
    file.write_text("\n".join(f"Bed {number}: beans, frost in May, water twice." for number in range(1500)))
    async with at_work(installed, tmp_path, "file", window=8192) as (ada, _):
        await ada.opens(RAW_MODEL)
        await ada.attaches(file)
        assert "w5" in await ada.says("What does it say? Please say 5 words.")
        assert "w6" in await ada.says("And once more, say 6 words.")
        await ada.shot("file")


def keeps_a_log(count: int) -> tuple[str, Callable[[Body], Script | str]]:
    """Return a log, and a model that writes so many words of it, and forty more for "go on"."""
    whole = " ".join(f"On day {day} the boat lay {day * 3 % 17} miles off." for day in range(count // 8))
    first = " ".join(whole.split()[:count])

    def says(body: Body) -> Script | str:
        if is_prune_order(body) or "chat_history" in str(body):
            return answers(body)
        asked, said = spoken(body, "user"), spoken(body, "assistant")
        if "?" in asked[-1] or body["max_tokens"] == 1:
            return "It lay there."
        if asked[-1] == "go on":
            return " " + " ".join(rest_of(whole, said[-1]).split()[:40])
        return rest_of(first, said[-1]) if said else first

    return whole, says


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("window", "count"), [(4096, 2500), (4096, 6000), (8192, 2000), (8192, 4000), (8192, 6000)])
async def test_the_end_of_a_long_answer(installed: Installed, tmp_path: Path, window: int, count: int) -> None:
    """ "Go on" continues at the next word, and a question about the end has it, whole or in most of the window.

    So it is after an answer that was stopped itself to make room, once the person has read it.
    """
    tokenizer = SimulatedTokenizer()
    whole, says = keeps_a_log(count)
    async with at_work(installed, tmp_path, f"end-{window}-{count}", window=window, says=says) as (ada, studio):
        for first, last in (("the log", "go on"), ("all of it", "What became of the boat in the last paragraph?")):
            await ada.opens(RAW_MODEL)
            await ada.says(f"Write {first}.")
            said = (await ada.stored())["content"]
            assert whole.startswith(said)
            await ada.reads()
            known = len(turns(studio))
            await ada.says(last)
            await ada.shot("last")
            more = (await ada.stored())["content"]
            turn = turns(studio)[known]
            [end] = spoken(turn.body, "assistant")
            assert said.endswith(end)
            assert len(tokenizer.split(end)) >= min(len(tokenizer.split(said)), 0.6 * window)
            if last == "go on":
                assert more.split()
                assert whole.split()[: len([*said.split(), *more.split()])] == [*said.split(), *more.split()]


async def test_the_same_file_with_each_message(installed: Installed, tmp_path: Path) -> None:
    """It stands once in each prompt, nobody waits for a compaction, and what the engine has read stays."""
    file = tmp_path / "garden.txt"
    file.write_text("\n".join(f"Bed {number}: beans, frost in May, water twice." for number in range(1500)))
    async with at_work(installed, tmp_path, "again", window=8192) as (ada, studio):
        await ada.opens(RAW_MODEL)
        for text in ("What does it say?", "And the second bed?", "Never mind."):
            await ada.attaches(file)
            await ada.says(f"{text} Please say 5 words.")
            assert not [line for line in await ada.lines() if line.startswith("Compacting")]
        await ada.shot("again")
        sent = [turn for turn in turns(studio) if "### Task:" in str(turn.body) and "<context>" in str(turn.body)]
        assert len(sent) == 3
        for turn in sent:
            assert sum("Bed 0: beans" in text for text in spoken(turn.body, "user")) == 1
        first, second, _ = (turn.body["messages"] for turn in sent)
        assert second[: len(first)] == first


async def test_lines_agree_with_the_page(installed: Installed, tmp_path: Path) -> None:
    """A line says of the window what the page's gauge says and the engine gets; title and address are the chat's."""
    async with at_work(installed, tmp_path, "gauge", window=8192) as (ada, studio):
        await ada.opens(RAW_MODEL)
        while not any(is_prune_order(chat.body) for chat in studio.chats):
            await ada.says("Please say 300 words.")
            await asyncio.sleep(2)
        row = await ada.row()
        assert row["title"] == "Numbers"
        assert (row["program"], row["url"]) == ("Open WebUI", ada.page.url)
        assert (await asyncio.to_thread(installed.ask, f"/api/v1/chats/{ada.chat}"))["title"] == "Numbers"
        gauge, known = row["context"]["tokens"], len(turns(studio))
        await ada.says("Please say 5 words.")
        prompt = turns(studio)[known].counted_tokens
        assert prompt is not None
        assert abs(prompt - gauge) <= 0.02 * prompt
        [line] = [line for line in await ada.lines() if line.startswith("Earlier part summarised while you read")]
        after = int(line.split(" to ")[-1].split()[0].replace(",", ""))
        assert abs(after - gauge) <= 0.02 * gauge


async def test_a_line_about_waiting_ends(installed: Installed, tmp_path: Path) -> None:
    """It says whose work is before this one, and is gone once the model is free."""
    async with at_work(installed, tmp_path, "waiting", window=8192, slots=1) as (ada, studio):
        await ada.opens(RAW_MODEL)
        await ada.says("Please say 5 words.")
        go_on = asyncio.Event()
        studio.enqueue(Script("So.", WaitFor(go_on)), when=lambda body: "elsewhere" in str(body["messages"]))
        other = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "elsewhere " * 4000}]}
        asking = asyncio.create_task(
            asyncio.to_thread(Installed(installed.elbowroom, "").ask, "/v1/chat/completions", other)
        )
        await eventually(lambda: "elsewhere" in str(studio.chats[-1].body), "the other chat never comes", 30)
        await ada.sends("boat " * 3000 + "Please say 6 words.")
        await ada.page.get_by_text(re.compile("^Waiting for the model: ")).wait_for()
        await ada.shot("waiting")
        go_on.set()
        assert "w6" in await ada.finished()
        await asking
        await ada.shot("answered")
        assert await ada.page.get_by_text("Waiting for the model").count() == 0
        await ada.reloads()
        assert await ada.page.get_by_text("Waiting for the model").count() == 0


async def test_what_an_agent_does(installed: Installed, tmp_path: Path) -> None:
    """Each call of a tool is a line, which says what was done, and stays with the answer."""
    notes = tmp_path / "Notes" / "Garden"
    notes.mkdir(parents=True)
    (notes / "long.md").write_text("Cover the beans before the frost.\n", encoding="utf-8")
    agents = f'[[agents]]\nid = "gardener"\nmodel = "{MODEL}"\ntools = ["vault"]\n[vault]\npath = \'{notes.parent}\'\n'
    async with at_work(installed, tmp_path, "agent", window=32_768, agents=agents) as (ada, studio):
        for call in (ToolCall("vault_read", {"path": "Garden/long.md"}), ToolCall("vault_search", {"query": "frost"})):
            studio.enqueue(Script(call), when=lambda body: bool(body.get("tools")))
        await ada.opens("gardener")
        assert "w5" in await ada.says("What of the beans? Please say 5 words.")
        await ada.shot("agent")
        lines = "\n".join(await ada.lines())
        assert "Reading Garden/long.md ..." in lines
        assert "Read Garden/long.md: " in lines
        assert "Searched 'frost': " in lines
