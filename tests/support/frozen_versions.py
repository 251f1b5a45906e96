"""A store and settings of each version that was published, which all later ones open: tests/data/versions.

frozen_versions.py VERSION     writes those of this version, for `scripts/release --freeze`
"""

import asyncio
import gzip
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import every_kind_of_row as rows
from kept_outputs import text_of
from ledger_files import file_store
from pydantic import BaseModel
from stored_conversations import unnumbered

from elbowroom.context.outputs import ref_to
from elbowroom.settings.keys import AGENT_TABLES, TABLE_LISTS, TABLES
from elbowroom.store import Store

FOLDER: Final = Path(__file__).parents[1] / "data" / "versions"
FROZEN: Final = sorted(path.name for path in FOLDER.iterdir())
STORE, SETTINGS = "elbowroom.db.gz", "settings.toml"


async def fill(store: Store) -> None:
    """Write what the file of version 4 has, as a server that then starts anew finds it."""
    store.conversations.note(rows.CHANGES)
    await store.conversations.settled()
    assert store.current
    await store.current.conversations.interrupt()
    await store.ledger.save(rows.ENTRY, rows.HISTORY)
    for text in (rows.LIST, rows.LOG, rows.NOTED):
        await store.tool_outputs.keep(rows.ME, "read", text)
    await store.tool_outputs.keep_media(rows.ME, "camera", "image/png", rows.IMAGE)
    await store.memories.save(rows.ME, rows.AGENT, "likes tea \ud800", 1.0)
    await store.memories.save(rows.ME, rows.AGENT, "is tired", 2.0)
    await store.memories.save(rows.YOU, rows.AGENT, "likes coffee", 3.0)


async def all_of(store: Store) -> list[object]:
    """Return all that can be read of it."""
    kept, ids = store.conversations, ("c", "d")
    return [
        [await kept.rows(owner) for owner in (rows.ME, rows.YOU)],
        [unnumbered(await kept.read(owner, name)) for owner in (rows.ME, rows.YOU) for name in ids],
        [await kept.turns(name, [f"{name}.answer", "c.answer"]) for name in ids],
        await kept.queue(),
        await kept.look_up(rows.ME, "", [*rows.CHAIN.keys, "c.answer", "new"]),
        await kept.look_up(rows.YOU, f"chat of {rows.YOU} \ud800", ["d.1"]),
        await store.ledger.find([rows.ENTRY.key]),
        [await text_of(store.tool_outputs, ref_to(rows.ME, text).id, owner=rows.ME) for text in rows.TEXTS],
        await store.tool_outputs.media(rows.ME, rows.IMAGE_ID),
        [await store.memories.all(owner, rows.AGENT) for owner in (rows.ME, rows.YOU)],
    ]


def thawed(version: str, path: Path) -> None:
    """Write the store of a version to a file."""
    path.write_bytes(gzip.decompress((FOLDER / version / STORE).read_bytes()))


def every_key() -> str:
    """Return settings that name every key that has a default which can be written down."""
    lines: list[str] = []
    for table, model in TABLES.items():
        lines += [f"[{table}]", *_defaults(model)]
    given = {"providers": ['id = "lmstudio"', 'kind = "lmstudio"'], "agents": ['id = "mine"', 'model = "some-model"']}
    for table, model in TABLE_LISTS.items():
        if table in given:
            keys = {line.split(" = ")[0] for line in given[table]}
            lines += [
                f"[[{table}]]",
                *given[table],
                *(line for line in _defaults(model) if line.split(" = ")[0] not in keys),
            ]
            lines += [
                line
                for name, own in AGENT_TABLES.items()
                if table == "agents"
                for line in (f"[agents.{name}]", *_defaults(own))
            ]
    return "\n".join(lines) + "\n"


def _defaults(model: type[BaseModel]) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        value: Any = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, bool | int | float | str) or value == []:
            lines.append(f"{name} = {json.dumps(value)}")
    return lines


async def freeze(version: str) -> None:
    """Fill a store and write settings, and keep both in the repository."""
    folder = FOLDER / version
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as given:
        path, whole = Path(given) / "elbowroom.db", Path(given) / "whole.db"
        async with file_store(path) as store:
            await fill(store)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(whole),))
        (folder / STORE).write_bytes(gzip.compress(whole.read_bytes(), mtime=0))
    (folder / SETTINGS).write_text(every_key(), encoding="utf-8")
    sys.stdout.write(f"Wrote {folder}.\n")


if __name__ == "__main__":
    asyncio.run(freeze(sys.argv[1]))
