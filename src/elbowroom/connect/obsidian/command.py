"""The command line of `elbowroom obsidian`: list, install, update, remove, pair."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.obsidian.agents_vault import choosing, leaving, told
from elbowroom.connect.obsidian.installation import Plan, described, installation, is_installed, removal, update
from elbowroom.connect.obsidian.vaults import Vault, chosen_vault, config_folder, known_vaults
from elbowroom.connect.pairing import ask_for_code
from elbowroom.errors import ElbowroomError
from elbowroom.settings.doubts import is_loopback, own_address, reached_host
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.load import Flags
from elbowroom.settings.model import ServerSettings

OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    "install": ("--enable", "--agents-vault", "--force", "--dry-run"),
    "update": ("--force", "--dry-run"),
    "remove": ("--all", "--agents-vault", "--dry-run"),
}
HELP: Final = {
    "--enable": "switch it on as well: add it to the vault's list of plugins",
    "--agents-vault": "the vault in which agents work: let it be this one, or with `remove` take that back",
    "--force": "replace a newer version, or another vault of the agents",
    "--all": "delete the plugin's own settings as well",
    "--dry-run": "show what would change, and change nothing",
}
LONELY: Final = (
    "A phone cannot reach elbowroom yet, which listens to this computer alone (server.host = {host}): docs/obsidian.md "
    "says how to let one in."
)
NAMELESS: Final = (
    "A phone reaches elbowroom by this computer's IP address; to use a name, add it to server.allowed_hosts."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asks for; each action returns the exit code and raises ElbowroomError."""

    options: argparse.Namespace
    live: LiveSettings

    def show(self) -> int:
        """Print the vaults, and what is installed in them."""
        known = known_vaults(os.environ)
        _say([*known.problems, *(line for vault in known.vaults for line in _row(described(vault)))])
        if not known.vaults:
            _say(["No vault of Obsidian was found. Any vault can be named by its folder."])
        return 0

    def install(self) -> int:
        """Put the plugin into a vault, and print the pairing code."""
        options, vault = self.options, self._vault()
        force: bool = options.force
        chosen = choosing(vault, self.live, os.environ, force=force) if options.agents_vault else []
        config = config_folder(vault, options.config_folder)
        plan = installation(config, self._address(), enable=options.enable, force=force)
        self._carry_out(vault, Plan([*plan.changes, *chosen], plan.notes))
        _say(self._afterwards(vault))
        return 0

    def update(self) -> int:
        """Bring the plugin up to date where it is installed; return 1 where one of several vaults fails."""
        if self.options.vault:
            vaults: Sequence[Vault] = [self._vault()]
        else:
            vaults = [vault for vault in known_vaults(os.environ).vaults if is_installed(vault)]
        if not vaults:
            raise ElbowroomError("The plugin is installed in no vault that Obsidian knows. Name the folder of one.")
        return max([self._updated(vault) for vault in vaults])

    def remove(self) -> int:
        """Take the plugin away."""
        options, vault = self.options, self._vault()
        plan = removal(config_folder(vault, options.config_folder), with_data=options.all)
        left = leaving(vault, self.live, os.environ)
        changes = [*plan.changes, *(left if options.agents_vault else [])]
        stays = ["Agents still work in this vault; --agents-vault takes that back as well."]
        self._carry_out(vault, Plan(changes, [*plan.notes, *(stays if left and not options.agents_vault else [])]))
        return 0

    def pair(self) -> int:
        """Print a pairing code."""
        _say(self._pairing())
        return 0

    def _vault(self) -> Vault:
        return chosen_vault(known_vaults(os.environ), self.options.vault)

    def _address(self) -> str:
        server = self.live.current().settings.server
        here = own_address(reached_host(server.host), server.port)
        return str(self.options.address or here).rstrip("/").removesuffix("/v1")

    def _pairing(self) -> list[str]:
        """Return the lines with a new code. Raises ElbowroomError, also where no elbowroom runs."""
        loaded = self.live.current()
        token = loaded.settings.server.token.reveal(loaded.folder, os.environ) or ""
        code, expires = ask_for_code(self._address(), token)
        until = time.strftime("%H:%M", time.localtime(expires))
        return [
            f"Pairing code: {code}",
            f"Type it in Obsidian: Settings, Elbowroom, Pairing. It is good until {until}, once.",
        ]

    def _updated(self, vault: Vault) -> int:
        try:
            config = config_folder(vault, self.options.config_folder)
            self._carry_out(vault, update(config, force=self.options.force))
        except ElbowroomError as error:
            sys.stderr.write(f"elbowroom: {vault.name} ({vault.folder}): {error}\n")
            return 1
        return 0

    def _carry_out(self, vault: Vault, plan: Plan) -> None:
        """Make the changes, and say what they are."""
        _say([f"{vault.name} ({vault.folder})"])
        if self.options.dry_run:
            _say(
                [*plan.lines, "Nothing was changed: this is what would be." if plan.lines else "Nothing would change."]
            )
            return
        for change in plan.changes:
            change.make()
            _say(change.lines)
        _say(plan.notes)

    def _afterwards(self, vault: Vault) -> Iterator[str]:
        """Yield what is left to do after the plugin was installed."""
        if self.options.dry_run:
            return
        settings = self.live.current().settings
        if agents := told(settings, vault):
            yield agents
        if phone := _about_phones(settings.server):
            yield phone
        try:
            yield from self._pairing()
        except ElbowroomError as error:
            yield f"{error} elbowroom obsidian pair shows a code later."


ACTIONS: Final[Mapping[str, tuple[str, Callable[[Asked], int]]]] = {
    "list": ("show the vaults, and what is installed in them", Asked.show),
    "install": ("put the plugin into a vault", Asked.install),
    "update": ("bring it up to date, in one vault or wherever it is installed", Asked.update),
    "remove": ("take it away again", Asked.remove),
    "pair": ("show a code that lets the plugin in", Asked.pair),
}


def add_obsidian(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether it was named, `flags` what flags set."""
    command = add_parser("obsidian", help="put elbowroom's plugin into a vault of Obsidian")
    actions = command.add_subparsers(title="what to do", required=True, metavar="ACTION")
    for name, (about, act) in ACTIONS.items():
        action = actions.add_parser(name, parents=list(parents), help=about, description=about)
        if name in OPTIONS:
            action.add_argument("vault", nargs="?", default="", metavar="VAULT", help="its name, or its folder")
            action.add_argument("--config-folder", default="", metavar="NAME", help="where it is not .obsidian")
        for option in OPTIONS.get(name, ()):
            action.add_argument(option, action="store_true", help=HELP[option])
        if name in ("install", "pair"):
            action.add_argument("--address", default="", help="elbowroom as Obsidian reaches it")
        action.set_defaults(run=partial(_run, act, place, flags), log_level="warning")


def _run(
    act: Callable[[Asked], int],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
    options: argparse.Namespace,
) -> int:
    path, is_named = place(options)
    return act(Asked(options, LiveSettings(path, os.environ, flags(options), must_exist=is_named)))


def _about_phones(server: ServerSettings) -> str:
    """Say what is missing before a phone reaches elbowroom, empty where nothing is."""
    if is_loopback(server.host):
        return LONELY.format(host=server.host)
    return "" if server.allowed_hosts else NAMELESS


def _row(row: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that tell of a vault."""
    yield f"{row['name']} ({row['path']}){', open' if row['open'] else ''}"
    if row["problem"]:
        yield f"  {row['problem']}"
    elif row["installed"] is None:
        yield "  not installed"
    else:
        state = "linked" if row["linked"] else "up to date" if row["up_to_date"] else "another version than elbowroom's"
        yield f"  {row['installed'] or 'unknown version'}, {state}, switched {'on' if row['enabled'] else 'off'}"


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
