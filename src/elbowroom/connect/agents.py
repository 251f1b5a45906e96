"""`elbowroom connect` for coding agents: shows what one is told, writes it into its files, or takes it back."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from elbowroom.connect.client import Client
from elbowroom.connect.files import ClientFile, Records
from elbowroom.connect.models import Choice, chosen_model
from elbowroom.errors import ElbowroomError

YOUR_TOKEN: Final = "YOUR_TOKEN"  # noqa: S105  # what a person replaces
NO_TOKEN: Final = "none"  # noqa: S105  # a program that insists on a key gets this one


def connect_agent(
    client: Client, options: argparse.Namespace, address: str, token: str, environ: Mapping[str, str], records: Records
) -> Iterator[str]:
    """Do what the options ask, and then yield what to tell the person, line by line. Raises ElbowroomError.

    `address` has no path; `token` is empty where the server asks for none.
    """
    files = [ClientFile.of(part, environ, records) for part in client.parts if part.names]
    if options.undo:
        return _undo(client, files)
    choice = Choice(address, token or NO_TOKEN, "", 0)
    if client.is_told_a_model:
        choice = _choice(options, address, token or NO_TOKEN)
    shown = replace(choice, token=YOUR_TOKEN if token else NO_TOKEN)
    return _write(client, files, choice, shown) if options.write else _show(client, files, shown)


def _choice(options: argparse.Namespace, address: str, token: str) -> Choice:
    """Return what the person has chosen. Raises ElbowroomError."""
    if options.window is not None and options.window < 1:
        raise ElbowroomError("--window takes a number of tokens, such as 32768.")
    if options.model and options.window:
        return Choice(address, token, options.model, options.window)
    model = chosen_model(address, token, options.model, _ask if sys.stdin.isatty() else None)
    window = options.window or model.window
    if not window:
        raise ElbowroomError(
            f"{model.id} is not loaded, so nobody knows its window yet. Load it, or say the window with --window."
        )
    return Choice(address, token, model.id, window, is_remembered=model.is_remembered and not options.window)


def _ask(names: Sequence[str]) -> str:
    """Ask the person for one of several models."""
    for number, name in enumerate(names, 1):
        sys.stdout.write(f"{number:3}  {name}\n")
    while True:
        try:
            answer = input("Which one? ").strip()
        except EOFError:
            raise ElbowroomError(f"No model was chosen. Name one with --model: {', '.join(names)}.") from None
        if answer in names:
            return answer
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]


def _heading(client: Client, choice: Choice) -> Iterator[str]:
    if not choice.model:
        yield f"{client.name} searches your conversations at {choice.address}/mcp."
        return
    sizes = f"a window of {choice.window:,} tokens, answers of up to {choice.output:,}."
    yield f"{client.name} with {choice.model}: {sizes}"
    if choice.is_remembered:
        yield "The model is not loaded; this is the window that it had when it was loaded last."
    if choice.window < client.least_window:
        yield f"{client.name} needs a window of {client.least_window:,} tokens at least: load the model with more."


def _show(client: Client, files: Sequence[ClientFile], choice: Choice) -> Iterator[str]:
    """Yield what goes where."""
    yield from _heading(client, choice)
    places = iter(files)
    for part in client.parts:
        yield ""
        yield f"In {next(places).path}:" if part.names else part.said
        yield ""
        yield choice.filled(part.text)
    yield ""
    if choice.token == YOUR_TOKEN:
        yield f"{YOUR_TOKEN} stands for the token of your settings."
    if client.is_written:
        yield "Nothing is written yet. The same command with --write writes it, and keeps your file as it was."
    else:
        yield client.then


def _write(client: Client, files: Sequence[ClientFile], choice: Choice, shown: Choice) -> Iterator[str]:
    """Write the files; nothing is written where one of them is not understood."""
    if not client.is_written:
        raise ElbowroomError(
            f"The settings of {client.name} are not written from here. Without --write you see what to paste."
        )
    contents = []
    for file, part in zip(files, client.parts, strict=True):
        try:
            contents.append(file.merged(part.kind, choice.filled(part.text)))
        except ElbowroomError:
            yield shown.filled(part.text)
            yield ""
            raise
    done = [_written(file, content) for file, content in zip(files, contents, strict=True)]
    yield from _heading(client, choice)
    yield from done
    yield client.then
    yield f"Back to how it was: elbowroom connect {client.id} --undo"


def _written(file: ClientFile, content: bytes) -> str:
    if file.content() == content:
        return f"{file.path} is as it should be."
    backup: Path | None = file.write(content)
    return f"Wrote {file.path}" + (f"; as it was before, it is in {backup}." if backup else ", which is new.")


def _undo(client: Client, files: Sequence[ClientFile]) -> Iterator[str]:
    """Put all files back, or none of them."""
    if not client.is_written:
        raise ElbowroomError(f"The settings of {client.name} are not written from here, so there is nothing to undo.")
    written = [file for file in files if file.was_written]
    if not written:
        raise ElbowroomError(f"Nothing was written to {files[0].path} from here, so there is nothing to undo.")
    for file in written:
        file.check_unchanged()
    for file in written:
        file.put_back()
    for file in written:
        yield f"{file.path} is as it was before."
