"""Where settings come from, from weakest to strongest: defaults, files in their order, the environment, flags.

What is changed while the server runs is stronger than all of them; it comes from the metadata store, not from here.

Each source turns into a table from setting name to text, with a note of where the text was found, so that a refusal
can name the line a person has to change. Nothing is interpreted here.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from kwire.config.properties import InvalidProperties, decode_properties
from kwire.config.setting import InvalidConfig


class Source(IntEnum):
    """Which source a value comes from; a greater one wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3
    DYNAMIC_DEFAULT = 4
    DYNAMIC_BROKER = 5


class Given(NamedTuple):
    """A text somebody set, and where: ``origin`` is a file, a variable or a flag, for messages."""

    text: str
    source: Source
    origin: str


# Variables of the official image, of its scripts and of container links that share the prefix but are no settings.
_NOT_SETTINGS = re.compile(
    r"KAFKA_(HOME|OPTS|VERSION|DEBUG|MODE|SCALA_VERSION|(HEAP|JVM|JMX|GC_LOG|LOG4J|TOOLS)(_.*)?"
    r"|SERVICE_(HOST|PORT).*|PORT(_[0-9].*)?)"
)
# Variables of our own tests and benchmarks, which a server started by them inherits.
_TEST_VARIABLES = re.compile(r"KWIRE_(TEST_.*|KAFKA_LIBS)")
_UNDERSCORES = re.compile("___|__|_")
_MEANING = {"___": "-", "__": "_", "_": "."}


def from_file(path: Path) -> dict[str, Given]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        # Java reads Latin-1 here; people write UTF-8, and a file that is not UTF-8 must be the older thing.
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    try:
        pairs = decode_properties(text)
    except InvalidProperties as error:
        raise InvalidConfig(f"{path}: {error}") from None
    return {name: Given(value, Source.FILE, str(path)) for name, value in pairs.items()}


def from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """The official image's rule: ``KAFKA_LOG_RETENTION_MS`` is ``log.retention.ms``, ``__`` is ``_``, ``___`` is ``-``.

    ``KWIRE_HTTP_LISTENER`` is ``kwire.http.listener`` by the same rule; ``CLUSTER_ID`` is ``cluster.id``.
    """
    found: dict[str, Given] = {}
    for variable, text in sorted(environment.items()):
        if variable == "CLUSTER_ID":
            name = "cluster.id"
        elif variable.startswith("KAFKA_") and not _NOT_SETTINGS.fullmatch(variable):
            name = _setting_name(variable.removeprefix("KAFKA_"))
        elif variable.startswith("KWIRE_") and not _TEST_VARIABLES.fullmatch(variable):
            name = _setting_name(variable)
        else:
            continue
        if name:
            found[name] = Given(text, Source.ENVIRONMENT, f"environment variable {variable}")
    return found


def from_flags(
    *, kafka: str | None = None, http: str | None = None, data_dir: str | None = None, settings: Iterable[str] = ()
) -> dict[str, Given]:
    """``--set name=value`` for any setting; ``--kafka``, ``--http`` and ``--data-dir`` are short for three and win."""
    found: dict[str, Given] = {}
    for assignment in settings:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"--set {assignment}: expected name=value")
        found[name.strip()] = Given(text, Source.FLAG, f"--set {assignment}")
    if kafka is not None:
        found["listeners"] = Given(f"PLAINTEXT://{kafka}", Source.FLAG, f"--kafka {kafka}")
    if http is not None:
        found["kwire.http.listener"] = Given(http, Source.FLAG, f"--http {http}")
    if data_dir is not None:
        found["log.dirs"] = Given(data_dir, Source.FLAG, f"--data-dir {data_dir}")
    return found


def _setting_name(variable: str) -> str:
    return _UNDERSCORES.sub(lambda match: _MEANING[match[0]], variable).lower()
