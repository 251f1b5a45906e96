"""What has to hold after a crowd's life: each check returns sentences about what does not."""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from crowd import MAY_TAKE, Crowd
from soak_words import WORD

CANCEL_SECONDS: Final = 0.5
TURNS_LEFT: Final = "SELECT id FROM turns WHERE status = 'streaming'"
LEASES_LEFT: Final = "SELECT number FROM admission"
TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
QUEUE_LEFT: Final = "SELECT message FROM queue"
ANSWERS: Final = "SELECT p.message, p.content FROM message_parts p JOIN messages m ON m.id = p.message \
WHERE p.kind = 'text' AND m.turn <> '' ORDER BY m.number, p.position"
"""What servers have written; a client that sends its history may have a copy of it kept."""
SAID: Final = "SELECT p.content FROM message_parts p JOIN messages m ON m.id = p.message \
WHERE p.content LIKE '%% adds %%' ORDER BY m.number, p.position"


def broken(crowd: Crowd, address: str) -> list[str]:
    """Return all that does not hold, once everybody has gone and the leases of the dead are over."""
    with psycopg.connect(address, autocommit=True) as database:
        tables = {name for (name,) in database.execute(TABLES)}
        answers = answers_of(database)
        found = [lost_words(crowd, answers), mixed_answers(answers), prompts_too_long(crowd)]
        if "servers" in tables:
            found += [turns_left(database), late_cancels(crowd), queue_not_read(crowd, database)]
        if "admission" in tables:
            found += [leases_left(database), windows_too_full(crowd)]
        return list(itertools.chain(*found))


def answers_of(database: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """Return the words of each message that a server has written, in order."""
    texts: dict[str, str] = defaultdict(str)
    for message, content in database.execute(ANSWERS):
        texts[message] += content.strip('"')
    return {message: WORD.findall(f"{text} ") for message, text in texts.items()}


def lost_words(crowd: Crowd, answers: dict[str, list[str]]) -> Iterator[str]:
    """A word that a client has received is kept, but for those of the moment before its server was killed.

    That moment is longer by the time in which the server or its database had no processor.
    """
    kept = set(itertools.chain(*answers.values()))
    for word, (at, server) in crowd.found.words.items():
        if word in kept:
            continue
        passed = [killed - at - crowd.found.slow(server, at, killed) for killed in server.killed if killed >= at]
        if not passed or passed[0] > MAY_TAKE:
            yield f"the word {word} is lost, {f'{passed[0]:.2f} s before a kill' if passed else 'without a kill'}"


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
    """The requests of all servers that an LM Studio works on never hold more than its window."""
    for studio in crowd.studios:
        for line in studio.lines("held"):
            if line["held"] > line["window"]:
                yield f"{line['held']} tokens in a window of {line['window']} of {studio.name}"


def turns_left(database: psycopg.Connection[Any]) -> Iterator[str]:
    """No turn counts as running when nobody is there: those of killed servers are marked."""
    yield from (f"the turn {turn} still runs" for (turn,) in database.execute(TURNS_LEFT))


def leases_left(database: psycopg.Connection[Any]) -> Iterator[str]:
    """No lease is lost: none is left when nobody asks."""
    yield from (f"the lease {lease} is left" for (lease,) in database.execute(LEASES_LEFT))


def late_cancels(crowd: Crowd) -> Iterator[str]:
    """An answer ends within half a second after it was cancelled on another server."""
    assert crowd.found.cancels, "nothing was cancelled"
    yield from (f"a cancel took {took:.2f} s" for took in crowd.found.cancels if took > CANCEL_SECONDS)


def queue_not_read(crowd: Crowd, database: psycopg.Connection[Any]) -> Iterator[str]:
    """What was added to a conversation on another server is read once, and in the order in which it was added."""
    yield from (f"{json.loads(message)} is left in the queue" for (message,) in database.execute(QUEUE_LEFT))
    said = [content.strip('"') for (content,) in database.execute(SAID)]
    for person in crowd.people:
        own = [text for text in said if text in person.queued]
        yield from (f"{text!r} is read {count} times" for text, count in Counter(own).items() if count > 1)
        yield from (f"{text!r} is not read" for text, is_known in person.queued.items() if is_known and text not in own)
        if not _in_order(own, list(person.queued)):
            yield f"{own} were read in this order"


def _in_order(texts: Sequence[str], order: Sequence[str]) -> bool:
    places = [order.index(text) for text in texts]
    return places == sorted(places)
