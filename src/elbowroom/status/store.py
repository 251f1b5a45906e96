"""The command line of `elbowroom store`: copies a store into another database, and checks one."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from elbowroom.errors import ElbowroomError
from elbowroom.settings.fields import expanded
from elbowroom.settings.load import Flags, usable_settings
from elbowroom.settings.model import StoreSettings
from elbowroom.status.asking import told

if TYPE_CHECKING:
    from elbowroom.store import ServerPlace
    from elbowroom.store.sql.moving import Checked

PLACE_HELP = "a file, or an address as store.url takes it: sqlite:///FILE, postgresql://USER:env:NAME@HOST/DATABASE"


def add_store(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether it was named, `flags` what flags set."""
    command = add_parser("store", help="copy the store into another database, or check it")
    actions = command.add_subparsers(title="actions", metavar="ACTION", dest="action")
    copying = actions.add_parser("copy", help="copy all that a store holds into an empty database")
    copying.add_argument("source", metavar="FROM", help=PLACE_HELP)
    copying.add_argument("target", metavar="TO", help="the same; one that is empty, or an unfinished copy of FROM")
    copying.set_defaults(run=lambda options: _copy(options.source, options.target))
    checking = actions.add_parser("check", parents=parents, help="read the whole store, and tell what is wrong with it")
    checking.add_argument("place", metavar="STORE", nargs="?", help=f"{PLACE_HELP} (default: the settings' store)")
    checking.add_argument("--data-dir", metavar="FOLDER", help="where the store is kept, as `serve` was told")
    checking.set_defaults(run=lambda options: _check(options, *place(options), flags(options)))
    command.set_defaults(run=lambda options: told(command), log_level="warning")


def _copy(source: str, target: str) -> int:
    from elbowroom.store.sql.moving import copy_store

    ends = _place_of(source, os.environ), _place_of(target, os.environ)
    with _progress("Copying") as report:
        copied = copy_store(*ends, report)
    _print_rows(copied.rows)
    sys.stdout.write(f"{ends[1]} has every row of {ends[0]}, which is as it was.\n")
    if copied.left_agents:
        sys.stdout.write(
            "The agents that its servers share are not in the copy: a file cannot hold them. Take them over into the "
            'settings file before you set store.agents = "file".\n'
        )
    sys.stdout.write("To use it, name it in store.url, and start elbowroom; searches are prepared in the background.\n")
    return 0


def _check(options: argparse.Namespace, path: Path, is_named: bool, flags: Flags) -> int:
    from elbowroom.store import store_place
    from elbowroom.store.sql.moving import check_store

    environ = {**os.environ}
    if options.data_dir:
        environ["ELBOWROOM_DATA_DIR"] = str(expanded(options.data_dir).absolute())
    if options.place:
        place = _place_of(options.place, environ)
    else:
        found = store_place(usable_settings(path, environ, flags, must_exist=is_named).settings.store, environ)
        if found is None:
            raise ElbowroomError("The settings keep the store in memory, where only the server can read it.")
        place = found
    with _progress("Reading") as report:
        checked = check_store(place, report)
    return _print_checked(place, checked)


def _place_of(written: str, environ: Mapping[str, str]) -> "Path | ServerPlace":
    from elbowroom.store import store_place

    if "://" not in written:
        return expanded(written)
    try:
        place = store_place(StoreSettings(url=written), environ)
    except ValidationError as error:
        takes = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ElbowroomError(f"This is no address of a store, which takes {takes}.") from None
    if place is None:
        raise ElbowroomError(f"{written} is a store in memory, which only the server that has it can read.")
    return place


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], object]]:
    """Draw a bar while something is done, where somebody looks."""
    from tqdm import tqdm

    with tqdm(desc=what, unit=" rows", disable=None, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _print_rows(rows: Mapping[str, int]) -> None:
    width = max(map(len, rows), default=0)
    sys.stdout.writelines(f"  {name:<{width}}  {count:>12,}\n" for name, count in rows.items())


def _print_checked(place: "Path | ServerPlace", checked: "Checked") -> int:
    sys.stdout.write(f"{place}: tables of version {checked.version}, {checked.bytes / 1e6:,.1f} MB in use\n")
    _print_rows(checked.rows)
    sys.stdout.writelines(f"Note: {remark}\n" for remark in checked.remarks)
    sys.stdout.writelines(f"Wrong: {fault}\n" for fault in checked.faults)
    if not checked.faults:
        sys.stdout.write("Sound: every row can be read.\n")
    return 1 if checked.faults else 0
