"""The language of a member: arguments in, lines out, and the wish to end."""

import sys
import threading
from collections.abc import Iterable

# Long enough that a client joins within one poll: kafka-python joins anew when a poll ends before.
POLL_MS = 1_000

_lock = threading.Lock()


def arguments() -> tuple[str, dict[str, str]]:
    """The topic, and the client's settings."""
    topic, *settings = sys.argv[1:]
    return topic, dict(setting.split("=", 1) for setting in settings)


def python_settings(settings: dict[str, str]) -> dict[str, str | int]:
    """As keyword arguments of clients that spell Kafka's names with underscores."""
    return {name.replace(".", "_"): int(value) if name.endswith(".ms") else value for name, value in settings.items()}


def say(word: str, *rest: object) -> None:
    """One line; threads of the client may speak at the same time."""
    with _lock:
        sys.stdout.write(" ".join([word, *map(str, rest)]) + "\n")
        sys.stdout.flush()


def say_partitions(word: str, partitions: Iterable[int]) -> None:
    say(word, *sorted(partitions))


def say_refused(why: object) -> None:
    say("refused", " ".join(str(why).split()) or repr(why))


def wish_to_end() -> threading.Event:
    """Set as soon as somebody writes to, or closes, standard input."""
    wish = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        wish.set()

    threading.Thread(target=listen, daemon=True).start()
    return wish
