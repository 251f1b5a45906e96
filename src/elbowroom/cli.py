"""The command line: what each command of `elbowroom --help` does, or who does it."""

import argparse
import asyncio
import io
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from elbowroom import __version__
from elbowroom.connect.command import add_connect
from elbowroom.connect.obsidian import add_obsidian
from elbowroom.doctor.command import add_doctor
from elbowroom.errors import ElbowroomError, WrongSettings, in_own_words, own_command
from elbowroom.logs.set_up import log_to_terminal, logging_to_file
from elbowroom.settings.fields import expanded, settings_path
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.load import Flags, LoadedSettings, list_settings, load_settings, usable_settings
from elbowroom.settings.shared import AGENTS_ELSEWHERE
from elbowroom.status.command import add_status
from elbowroom.status.mcp import add_mcp
from elbowroom.status.memories import add_memories
from elbowroom.status.quality import add_quality
from elbowroom.status.store import add_store
from elbowroom.status.users import add_users

DEMO_SETTINGS = """\
[[providers]]
id = "lmstudio"
kind = "lmstudio"
base_url = "{url}"

[[agents]]
id = "writer"
name = "Writer"
instructions = "You help with notes. Answer briefly."
model = "qwen2.5-7b-instruct"
"""
DEMO_GREETING = """\
elbowroom runs in front of a simulated LM Studio. Its models only pretend: nothing was downloaded.

Try it:
  curl {address}/v1/chat/completions -H 'Content-Type: application/json'{token} \\
    -d '{{"model": "writer", "messages": [{{"role": "user", "content": "Hello!"}}]}}'

Paste this into Open WebUI, Obsidian or any OpenAI client ({key}):
  {address}/v1

Watch it, and choose agents and settings:
  {address}/

Settings of this demo: {path}
Ctrl-C ends it."""
TOKEN_VARIABLE = "ELBOWROOM_TOKEN"  # noqa: S105  # a name, not a token


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 for done, 1 for an error that has been explained."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the terminal may not be able to show a name in the settings
            stream.reconfigure(errors="backslashreplace")
    log_to_terminal(options.log_level)
    try:
        result: int = options.run(options)
        print(end="", flush=True)
    except ElbowroomError as error:
        print(f"elbowroom: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=own_command(),
        description="An OpenAI-compatible server for local models that never silently loses context.",
    )
    parser.add_argument("--version", action="version", version=f"elbowroom {__version__}")
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("--config", metavar="FILE", help="the settings file (default: as `config path` says)")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="how much is logged"
    )
    address = argparse.ArgumentParser(add_help=False)
    address.add_argument("--host", help="the address to listen on (default: server.host, 127.0.0.1)")
    address.add_argument("--port", type=int, help="the port to listen on (default: server.port, 2345)")
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--host", help="the address that elbowroom listens on (default: server.host, 127.0.0.1)")
    place.add_argument("--port", type=_port, help="the port that it listens on (default: server.port, 2345)")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", parents=[file, common, address], help="run the server")
    serve.add_argument("--data-dir", metavar="FOLDER", help="where the store is kept, in the place of its usual folder")
    serve.set_defaults(run=_serve)
    demo = commands.add_parser("demo", parents=[common, address], help="run it in front of a simulated LM Studio")
    demo.set_defaults(run=_demo)
    count = commands.add_parser("count", parents=[file, common], help="count the tokens of a text or a chat request")
    count.add_argument(
        "--model", required=True, metavar="ID", help="a model as clients name it: lmstudio/<id>, or an agent"
    )
    count.add_argument("file", metavar="FILE", help="a text, or the JSON of a chat request; - for standard input")
    count.set_defaults(run=_count)
    config = commands.add_parser("config", parents=[file, common], help="show and check the settings")
    config.add_argument("what", choices=["path", "show", "check"], help="the file; what is set; or what is wrong")
    config.add_argument("--all", action="store_true", help="with `show`: the defaults as well")
    config.set_defaults(run=_config)
    autostart = commands.add_parser("autostart", parents=[file, common], help="start the server when you log in")
    autostart.add_argument("what", choices=["on", "off", "status"], help="begin with it; end it; or how it stands")
    autostart.add_argument("--print", action="store_true", help="show what `on` would write, and write nothing")
    autostart.add_argument("--force", action="store_true", help="replace or remove what somebody else wrote or changed")
    autostart.set_defaults(run=_autostart)
    add_status(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_memories(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_users(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_store(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_connect(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_obsidian(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_doctor(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_mcp(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    add_quality(commands.add_parser, [file, place], lambda options: (_path(options), _is_named(options)), _flags)
    return parser


def _port(text: str) -> int:
    """Return the port of a server that runs. Raises ArgumentTypeError."""
    if text.isdecimal() and 0 < int(text) < 65_536:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port that a server listens on: take one from 1 to 65535")


def _serve(options: argparse.Namespace) -> int:
    from elbowroom.caches import importing, keep_memory_small

    with importing():
        from elbowroom.server.listen import serve
        from elbowroom.store import database_path, only_process, store_place
        from elbowroom.store.inspection import check_encoding

    keep_memory_small()
    environ = {**os.environ}
    if options.data_dir:
        environ["ELBOWROOM_DATA_DIR"] = str(expanded(options.data_dir).absolute())
    live = LiveSettings(_path(options), environ, _flags(options), must_exist=_is_named(options))
    for warning in live.current().warnings:
        logging.getLogger(__name__).warning("%s", warning)
    check_encoding(store_place(live.current().settings.store, environ))
    database = database_path(live.current().settings.store, environ)
    with only_process(database), logging_to_file(live.current(), environ):
        asyncio.run(serve(live, environ))
    return 0


def _demo(options: argparse.Namespace) -> int:
    asyncio.run(_run_demo(options))
    return 0


async def _run_demo(options: argparse.Namespace) -> None:
    """Run a simulated LM Studio and the server in front of it, with settings of their own."""
    from elbowroom.caches import importing

    with importing():
        from elbowroom.demo import demo_studio
        from elbowroom.server.app import StopRequests, bound_the_stop, finish_answers, longest_stop
        from elbowroom.server.listen import listening
        from elbowroom.server.state import SETTINGS, SHARED, WARM_UP

    requests = StopRequests.listen()
    with tempfile.TemporaryDirectory(prefix="elbowroom-demo-") as folder:
        async with demo_studio() as studio:
            path = Path(folder) / "settings.toml"
            path.write_text(DEMO_SETTINGS.format(url=studio.base_url), encoding="utf-8")
            environ = {**_environment_of_demo(), "ELBOWROOM_DATA_DIR": folder}
            async with listening(LiveSettings(path, environ, _flags(options)), environ) as (app, address):
                print(_greeting(address, path, asks_for_token=TOKEN_VARIABLE in environ), flush=True)
                app[WARM_UP]()
                await requests.asked.wait()
                stop = app[SETTINGS].current().settings.server
                bound_the_stop(longest_stop(stop))
                await finish_answers(app[SHARED].running, requests, stop.drain_seconds)


def _environment_of_demo() -> dict[str, str]:
    """Return the environment without the settings of the real server, except a token."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ELBOWROOM_") or (name == TOKEN_VARIABLE and value.strip())
    }


def _greeting(address: str, path: Path, *, asks_for_token: bool) -> str:
    token = f' -H "Authorization: Bearer ${TOKEN_VARIABLE}"' if asks_for_token else ""
    key = f"the API key is ${TOKEN_VARIABLE}" if asks_for_token else "any API key will do"
    return DEMO_GREETING.format(address=address, path=path, token=token, key=key)


def _count(options: argparse.Namespace) -> int:
    loaded = usable_settings(_path(options), os.environ, {}, must_exist=_is_named(options))
    try:
        content = sys.stdin.buffer.read() if options.file == "-" else expanded(options.file).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ElbowroomError(f"{options.file} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ElbowroomError(f"{options.file} is not UTF-8 text (byte {error.start}).") from error
    asyncio.run(_print_count(loaded, options.model, text))
    return 0


async def _print_count(loaded: LoadedSettings, model: str, text: str) -> None:
    """Count with the provider of the model, which has to run; no model is loaded."""
    from elbowroom.agents.catalog import Catalog
    from elbowroom.agents.dry_run import count_input
    from elbowroom.agents.offered import SettingsToolbox
    from elbowroom.agents.turn import RunSettings, Shared
    from elbowroom.providers.registry import Providers
    from elbowroom.providers.upstream import open_session
    from elbowroom.store import open_in_memory

    store = open_in_memory()
    tools = SettingsToolbox(lambda: loaded, os.environ, store.memories)
    async with open_session() as http, AsyncExitStack() as closing:
        providers, shared = Providers(http, os.environ), Shared.over(store, tools)
        for opened in (providers, store, tools, shared):
            closing.push_async_callback(opened.aclose)
        catalog = Catalog(loaded.settings.agents, providers.of(loaded))
        settings = RunSettings.under(loaded.settings, catalog, shared)
        sized = await count_input(await catalog.resolve(model), text, settings)
    count = sized.count
    off = f", at most {count.error_bound} off in 95 of 100 cases" if count.error_bound else ""
    share = f"; {count.tokens * 100 // sized.window} % of the window of {sized.window}" if sized.window else ""
    print(f"{count.tokens} tokens ({count.method}{off}){share}")


def _config(options: argparse.Namespace) -> int:
    path = _path(options)
    if options.what == "path":
        print(path)
        return 0
    try:
        loaded = load_settings(path, os.environ, {}, must_exist=_is_named(options))
    except WrongSettings as error:
        for doubt in error.doubts:
            print(f"Warning: {doubt}", file=sys.stderr)
        raise
    if options.what == "show":
        lines = [*list_settings(loaded, os.environ, defaults=options.all)]
        none = in_own_words("Nothing is set; `elbowroom config show --all` lists the defaults.")
        print("\n".join(lines) or none)
    for warning in loaded.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    if options.what == "show" and loaded.settings.store.agents == "database":
        print(AGENTS_ELSEWHERE, file=sys.stderr)
    if options.what == "check":
        accepted = "all settings are accepted, but for the warnings" if loaded.warnings else "all settings are accepted"
        print(f"{path}: {accepted if path.exists() else 'not there; the defaults are used'}.")
    return 0


def _autostart(options: argparse.Namespace) -> int:
    from elbowroom.autostart.command import autostart

    warn = partial(print, file=sys.stderr)
    autostart(options.what, options.config, print, warn, only_print=options.print, force=options.force)
    return 0


def _path(options: argparse.Namespace) -> Path:
    return expanded(options.config) if options.config else settings_path(os.environ)


def _is_named(options: argparse.Namespace) -> bool:
    """Tell whether the person named the file, so that its absence is an error."""
    return bool(options.config or os.environ.get("ELBOWROOM_CONFIG"))


def _flags(options: argparse.Namespace) -> Flags:
    return {("server", "host"): options.host, ("server", "port"): options.port}
