"""What has to hold after a crowd's life: each check returns sentences about what does not."""

import itertools
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import aiohttp
import psycopg
from crowd import MAY_TAKE, Crowd
from server_processes import BEARER
from soak_words import WORD

CANCEL_SECONDS: Final = 0.5
MOST_LISTED: Final = 100
LONGEST_SHOWN: Final = 500
TURNS_LEFT: Final = "SELECT id FROM turns WHERE status = 'streaming'"
LEASES_LEFT: Final = "SELECT number FROM admission"
QUEUE_LEFT: Final = "SELECT message FROM queue"
ANSWERS: Final = "SELECT p.message, p.content FROM message_parts p JOIN messages m ON m.id = p.message \
WHERE p.kind = 'text' AND m.turn <> '' ORDER BY m.number, p.position"
"""What servers have written; a client that sends its history may have a copy of it kept."""
SAID: Final = "SELECT p.content, m.conversation, m.id, t.server, t.status FROM message_parts p \
JOIN messages m ON m.id = p.message LEFT JOIN turns t ON t.id = m.turn \
WHERE p.content LIKE '%% adds %%' ORDER BY m.number, p.position"


async def broken(crowd: Crowd) -> list[str]:
    """Return all that does not hold, once everybody has gone and the leases of the dead are over."""
    with psycopg.connect(crowd.database, autocommit=True) as database:
        answers = answers_of(database)
        found = itertools.chain(
            lost_words(crowd, answers),
            mixed_answers(answers),
            prompts_too_long(crowd),
            turns_left(database),
            late_cancels(crowd),
            queue_not_read(crowd, database),
            leases_left(database),
            windows_too_full(crowd),
            paid_twice(crowd),
            failures(crowd),
        )
        return [*found, *await different_lists(crowd)]


def summary(crowd: Crowd, seed: int) -> str:
    """Return what was done, and how it went, in lines."""
    found, faults = crowd.found, Counter(fault.kind for fault in crowd.hand.done)
    took = sorted(cancel.took for cancel in found.cancels)
    own = sorted(cancel.own for cancel in found.cancels)
    prompts = [line["prompt"] for studio in crowd.studios for line in studio.lines("prompt")]
    compactions = sum(len(studio.lines("compaction")) for studio in crowd.studios)
    queued = sum(len(person.queued) for person in crowd.people)
    lines = [
        f"seed {seed}: {', '.join(f'{count} x {kind}' for kind, count in sorted(faults.items()))}",
        *(f"  {crowd.hand.when(fault.began)}: {fault}" for fault in crowd.hand.done),
        f"{len(found.words)} words, {found.went['whole answers']} whole answers, {queued} messages in queues",
        f"{len(prompts)} prompts of at most {max(prompts)} tokens, {compactions} compactions",
        f"{len(took)} cancels in calm, p50 {statistics.median(took):.3f} s, longest {took[-1]:.3f} s, "
        f"or {own[-1]:.3f} s where what waited for a processor does not count"
        if took
        else "no cancel in calm",
        *(f"{count:6} {went}" for went, count in sorted(found.went.items())),
    ]
    return "\n".join(lines)


def answers_of(database: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """Return the words of each message that a server has written, in order."""
    texts: dict[str, str] = defaultdict(str)
    for message, content in database.execute(ANSWERS):
        texts[message] += content.strip('"')
    return {message: WORD.findall(f"{text} ") for message, text in texts.items()}


def lost_words(crowd: Crowd, answers: dict[str, list[str]]) -> Iterator[str]:
    """A word that a client has received is kept, but for those of the moment before its server was killed.

    That moment is longer by the time in which the server or its database had no processor, once for the thread that
    answers and once for the one that writes.
    """
    kept = set(itertools.chain(*answers.values()))
    for word, (at, server) in crowd.found.words.items():
        if word in kept:
            continue
        killed = crowd.hand.killed_after(server, at)
        if killed is None or killed - at > MAY_TAKE + 2 * crowd.found.slow(server, at, killed):
            when = "without a kill" if killed is None else f"{killed - at:.2f} s before its kill"
            yield f"the word {word} is lost, which {server.folder.name} said {crowd.hand.when(at)}, {when}"


def mixed_answers(answers: dict[str, list[str]]) -> Iterator[str]:
    """An answer has one writer: each word stands once, and those of one reply from the first on, without a gap."""
    for word, count in Counter(itertools.chain(*answers.values())).items():
        if count > 1:
            yield f"the word {word} is written {count} times"
    for message, words in answers.items():
        for reply, group in itertools.groupby(words, lambda word: word.partition(".")[0]):
            places = [int(word.partition(".")[2]) for word in group]
            if places != list(range(len(places))):
                yield f"the message {message} has the words {places} of {reply}"


def prompts_too_long(crowd: Crowd) -> Iterator[str]:
    """No prompt is as long as the window that it went to, or longer."""
    for studio in crowd.studios:
        lines = studio.lines("prompt")
        assert lines, "no prompt came"
        yield from (f"a prompt of {line['prompt']} tokens" for line in lines if line["prompt"] >= line["window"])


def windows_too_full(crowd: Crowd) -> Iterator[str]:
    """The requests that an LM Studio works on never hold more than its window, where servers can know of each other.

    Those that came while they could not may go on for long: too much is held where one has come after that.
    """
    for studio in crowd.studios:
        for line in studio.lines("held"):
            hidden = map(crowd.hand.hid_what_is_held, (line["at"], line["newest"]))
            if line["held"] > line["window"] and not any(hidden):
                when, came = crowd.hand.when(line["at"]), crowd.hand.when(line["newest"])
                held = f"{line['held']} tokens in a window of {line['window']}"
                yield f"{held} of {studio.name} {when}, the newest request came {came}"


def turns_left(database: psycopg.Connection[Any]) -> Iterator[str]:
    """No turn counts as running when nobody is there: those of killed servers are marked."""
    yield from (f"the turn {turn} still runs" for (turn,) in database.execute(TURNS_LEFT))


def leases_left(database: psycopg.Connection[Any]) -> Iterator[str]:
    """No lease is lost: none is left when nobody asks."""
    yield from (f"the lease {lease} is left" for (lease,) in database.execute(LEASES_LEFT))


def late_cancels(crowd: Crowd) -> Iterator[str]:
    """An answer ends within half a second after it was cancelled on another server.

    Nothing can be told where those who take part in it had to wait longer than that for a processor.
    """
    assert crowd.found.went["cancel: cancelled"], "nothing was cancelled"
    for cancel in crowd.found.cancels:
        if cancel.own > CANCEL_SECONDS > cancel.waited:
            yield f"a cancel {crowd.hand.when(cancel.began)} took {cancel.took:.2f} s, {cancel.own:.2f} s of it its own"


def queue_not_read(crowd: Crowd, database: psycopg.Connection[Any]) -> Iterator[str]:
    """What was added to a conversation on another server is read once, and in the order in which it was added."""
    yield from (f"{json.loads(message)} is left in the queue" for (message,) in database.execute(QUEUE_LEFT))
    read = defaultdict[str, list[str]](list)
    places = defaultdict[str, list[Any]](list)
    for content, conversation, *place in database.execute(SAID):
        read[conversation].append(content.strip('"'))
        places[content.strip('"')].append((conversation, *place))
    for person in crowd.people:
        yield from (
            f"{text!r} is not read" for text, is_known in person.queued.items() if is_known and not places[text]
        )
        for texts in read.values():
            own = [text for text in texts if text in person.queued]
            again = [text for text, count in Counter(own).items() if count > 1]
            yield from (f"{text!r} is read again: {places[text]}" for text in again)
            if not again and not _in_order(own, list(person.queued)):
                yield f"{own} were read in this order"


def paid_twice(crowd: Crowd) -> Iterator[str]:
    """What a pruning agent has summarised to the end is not summarised again, but where a fault came just then."""
    for studio in crowd.studios:
        paid = dict[str, dict[str, Any]]()
        for line in studio.lines("compaction"):
            before = paid.get(line["compaction"])
            if before is not None and crowd.hand.is_calm(before["asked"], before["answered"] + MAY_TAKE):
                (person,) = (person for person in crowd.people if person.name == line["person"])
                began = before["asked"]
                yield (
                    f"a compaction of {person.name} is paid twice, asked {crowd.hand.when(began)}, answered "
                    f"{before['answered'] - began:.2f} s and asked again {line['asked'] - began:.2f} s later: "
                    f"{person.between(began, line['answered'])}"
                )
            paid[line["compaction"]] = line


def failures(crowd: Crowd) -> Iterator[str]:
    """No server has failed in a way that it does not know."""
    yield from (f"{count} times {went}" for went, count in crowd.found.went.items() if "500" in went)


async def different_lists(crowd: Crowd) -> list[str]:
    """Lists, searches and what was said are the same at all servers."""
    asked = [f"/v1/conversations?limit={MOST_LISTED}"]
    asked += [f"/v1/conversations?limit={MOST_LISTED}&q={text}" for text in ("We%20sang", "adds%202", "person%201")]
    asked += [f"/v1/conversations/{person.name}/{part}" for person in crowd.people for part in ("messages", "queue")]
    differ = []
    async with aiohttp.ClientSession(headers=BEARER) as http:
        for path in asked:
            answers = []
            for server in crowd.servers:
                async with http.get(server.url + path) as response:
                    answers.append((await response.json()).get("data", response.status))
            rows = [[row for row in answer if row not in answers[0]] for answer in answers if answer != answers[0]]
            if rows:
                differ.append(f"{path} is not the same at all servers: {str(rows)[:LONGEST_SHOWN]}")
    return differ


def _in_order(texts: Sequence[str], order: Sequence[str]) -> bool:
    places = [order.index(text) for text in texts]
    return places == sorted(places)
