"""Which compactions, archived messages and lists of outputs refer to which outputs of tools."""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.context.outputs import references_in
from elbowroom.store.message_json import Written
from elbowroom.store.tables import archived_messages, ledger_entries, tool_output_uses


@dataclass(frozen=True, slots=True)
class Uses:
    """The ids that an entry's messages refer to, and those that the messages refer to which it was made from."""

    entry: frozenset[str]
    archive: Mapping[str, frozenset[str]]


def uses_in(content: Written) -> Uses:
    """Return what is referred to in what is to be kept."""
    archive = {key: frozenset(references_in(message)) for key, message in content.archive.items()}
    return Uses(frozenset(references_in(content.messages)), {key: ids for key, ids in archive.items() if ids})


async def save_compaction_uses(connection: AsyncConnection, key: str, uses: Uses, new: Container[str]) -> None:
    """Write down what an entry refers to in place of what the one before it did, and what the new messages do."""
    await delete_uses(connection, ledger_entries.name, key)
    await save_uses(connection, ledger_entries.name, key, uses.entry)
    for message, ids in uses.archive.items():
        if message in new:
            await save_uses(connection, archived_messages.name, message, ids)


async def save_uses(connection: AsyncConnection, place: str, key: str, ids: frozenset[str]) -> None:
    """Write down that what has this key in the table of this name refers to these ids, if there are any."""
    if ids:
        await delete_uses(connection, place, key)
        values = [{"place": place, "key": key, "id": ref_id} for ref_id in ids]
        await connection.execute(insert(tool_output_uses), values)


async def delete_uses(connection: AsyncConnection, place: str, key: str) -> None:
    """Delete what is written down of what has this key in the table of this name."""
    await connection.execute(delete(tool_output_uses).filter_by(place=place, key=key))


async def delete_lost_uses(connection: AsyncConnection) -> None:
    """Delete the uses of what is not there any more."""
    own = tool_output_uses.c
    for table in (ledger_entries, archived_messages):
        lost = (own.place == table.name) & own.key.not_in(select(table.c.key))
        await connection.execute(delete(tool_output_uses).where(lost))
