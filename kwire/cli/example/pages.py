"""kwire example chat and kwire example lobby: pages of the server, for the browser."""

import argparse
from contextlib import suppress
from functools import partial
from urllib.parse import urlencode

from kwire.cli.connection.options import add_http_options
from kwire.cli.example.server import ExampleServer, add_temporary, check_examples, example_server
from kwire.cli.framework.parser import CommandParser

ROOMS = {"chat": "chat-room-1", "lobby": "game-lobby-42", "monitoring": "system-events"}


def add_chat(parser: CommandParser) -> None:
    add_page_options(parser, "chat")
    parser.set_defaults(run=partial(run, "chat"))


def add_lobby(parser: CommandParser) -> None:
    add_page_options(parser, "lobby")
    parser.set_defaults(run=partial(run, "lobby"))


def add_page_options(parser: CommandParser, name: str) -> None:
    """Declare the options that `show_page` and `example_server` read."""
    parser.add_argument("--room", default=ROOMS[name], help=f"the room (default {ROOMS[name]})")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_temporary(parser)
    parser.epilog = "If no server is named and none runs at the default address, a temporary one is used until Ctrl-C."
    add_http_options(parser)


def run(name: str, options: argparse.Namespace) -> None:
    with example_server(options) as server, suppress(KeyboardInterrupt):
        show_page(name, server, options)
        if server.process is not None:
            server.process.wait()


def show_page(name: str, server: ExampleServer, options: argparse.Namespace) -> None:
    """Print the address of a page. Raises as `check_examples` does."""
    path = f"/examples/{name}"
    check_examples(server)
    base = server.http.url if "://" in server.http.url else f"http://{server.http.url}"
    query = "" if options.room == ROOMS[name] else f"?{urlencode({'room': options.room})}"
    address = f"{base.rstrip('/')}{path}{query}"
    print(f"open {address}", flush=True)
    if server.process is not None:
        print("Ctrl-C stops the server and deletes its data", flush=True)
    if options.open:
        # Imported here, because few calls need it.
        import webbrowser

        webbrowser.open(address)
