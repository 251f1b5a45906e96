"""The rows of the ledger in memory stay within their bounds."""

from elbowroom.store.memory_rows import MemoryLedgerRows
from ledger_samples import compaction, conversation


async def test_the_entries_that_nobody_used_for_longest_go_first() -> None:
    """With one entry too many, the one goes that was neither saved nor found lately."""
    samples = [compaction(conversation(2, f"subject {number}")) for number in range(4)]
    keys = [entry.key for entry, _ in samples]
    rows = MemoryLedgerRows(most_entries=3)
    for entry, archive in samples[:3]:
        await rows.save(entry, archive)
    await rows.find([keys[0]])
    await rows.save(*samples[3])
    assert list(await rows.keys()) == [keys[2], keys[0], keys[3]]
    assert await rows.archived(keys[1]) == []


async def test_the_bytes_are_bounded_too() -> None:
    """Entries go until the rest is small enough, with the messages they were made from."""
    samples = [compaction(conversation(50, f"subject {number}")) for number in range(10)]
    unbounded = MemoryLedgerRows()
    for sample in samples:
        await unbounded.save(*sample)
    sizes = [held.size for held in unbounded.all()]
    assert min(sizes) > 5000
    rows = MemoryLedgerRows(most_bytes=sum(sizes[-3:]))
    for sample in samples:
        await rows.save(*sample)
    assert list(await rows.keys()) == [entry.key for entry, _ in samples[-3:]]


async def test_replacing_an_entry_frees_what_it_took() -> None:
    """The same conversation saved again and again takes the room of one."""
    entry, archive = compaction(conversation(50))
    once = MemoryLedgerRows()
    await once.save(entry, archive)
    rows = MemoryLedgerRows(most_bytes=2 * once.all()[0].size)
    other = compaction(conversation(20, "another subject"))
    await rows.save(*other)
    for _ in range(10):
        await rows.save(entry, archive)
    assert list(await rows.keys()) == [other[0].key, entry.key]


async def test_what_is_larger_than_the_bounds_is_not_kept() -> None:
    """One huge entry is dropped at once, and nothing breaks."""
    rows = MemoryLedgerRows(most_bytes=10)
    entry, archive = compaction(conversation(50))
    await rows.save(entry, archive)
    assert list(await rows.keys()) == []
    assert await rows.find([entry.key]) == []


async def test_closing_forgets_everything() -> None:
    """Nothing is held after the end."""
    rows = MemoryLedgerRows()
    entry, archive = compaction(conversation(2))
    await rows.save(entry, archive)
    await rows.aclose()
    assert list(await rows.keys()) == []
    assert await rows.archived(entry.key) == []
