"""The sources of settings, in increasing order of precedence: defaults, files in their order, the environment, flags.

Dynamic changes take precedence over all of these. They are read from the metadata store, not by this module.

Each source is read into a table from setting name to text and origin. The origin is a file, variable or flag, so that
an error message can name the place to change. Values are not parsed here.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from kwire.config.properties import InvalidProperties, decode_properties
from kwire.config.setting import InvalidConfig


class Source(IntEnum):
    """The source of a value. A greater number takes precedence."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3
    DYNAMIC_DEFAULT = 4
    DYNAMIC_BROKER = 5


class GivenValue(NamedTuple):
    """The text given for a setting. ``origin`` is the file, variable or flag that messages name."""

    text: str
    source: Source
    origin: str


# Variables that have the prefix KAFKA_ but are not settings: those of the official image, of its scripts and of
# container links.
_NOT_SETTINGS = re.compile(
    r"KAFKA_(HOME|OPTS|VERSION|DEBUG|MODE|SCALA_VERSION|(HEAP|JVM|JMX|GC_LOG|LOG4J|TOOLS)(_.*)?"
    r"|SERVICE_(HOST|PORT).*|PORT(_[0-9].*)?)"
)
# Variables with the prefix KWIRE_ that are not settings: those of the tests, the benchmarks and the commands of kwire.
# A server that inherits them must not report them, least of all a password, as unknown settings.
_NOT_KWIRE_SETTINGS = re.compile(r"KWIRE_(TEST_.*|KAFKA_LIBS|USER|PASSWORD|BOOTSTRAP_SERVER|HTTP|CONFIG|PROFILE|DEBUG)")
# Names of settings whose values are not shown in messages.
_SECRET_NAMES = re.compile(r"password|secret|jaas|keystore\.key$")
_UNDERSCORES = re.compile("___|__|_")
_MEANING = {"___": "-", "__": "_", "_": "."}


def from_file(path: Path) -> dict[str, GivenValue]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        # Java reads Latin-1, but most files are UTF-8. A file that is not valid UTF-8 is read as Latin-1.
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    try:
        pairs = decode_properties(text)
    except InvalidProperties as error:
        raise InvalidConfig(f"{path}: {error}") from None
    return {name: GivenValue(value, Source.FILE, str(path)) for name, value in pairs.items()}


def from_environment(environment: Mapping[str, str]) -> dict[str, GivenValue]:
    """Return the settings in environment variables, which are named as in the official image.

    ``KAFKA_LOG_RETENTION_MS`` sets ``log.retention.ms``. In a variable ``__`` stands for ``_`` and ``___`` for ``-``.
    By the same rule ``KWIRE_HTTP_LISTENER`` sets ``kwire.http.listener``. ``CLUSTER_ID`` sets ``cluster.id``.
    """
    found: dict[str, GivenValue] = {}
    for variable, text in sorted(environment.items()):
        if variable == "CLUSTER_ID":
            name = "cluster.id"
        elif variable.startswith("KAFKA_") and not _NOT_SETTINGS.fullmatch(variable):
            name = _setting_name(variable.removeprefix("KAFKA_"))
        elif variable.startswith("KWIRE_") and not _NOT_KWIRE_SETTINGS.fullmatch(variable):
            name = _setting_name(variable)
        else:
            continue
        if name:
            found[name] = GivenValue(text, Source.ENVIRONMENT, f"environment variable {variable}")
    return found


def from_flags(
    *, kafka: str | None = None, http: str | None = None, data_dir: str | None = None, settings: Iterable[str] = ()
) -> dict[str, GivenValue]:
    """Return the settings in command-line flags.

    ``--set name=value`` sets any setting. ``--kafka``, ``--http`` and ``--data-dir`` are short forms for three settings
    and take precedence over ``--set``.
    """
    found: dict[str, GivenValue] = {}
    for assignment in settings:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"--set {assignment}: expected name=value")
        shown = f"{name}=[hidden]" if _SECRET_NAMES.search(name) else assignment
        found[name.strip()] = GivenValue(text, Source.FLAG, f"--set {shown}")
    if kafka is not None:
        found["listeners"] = GivenValue(f"PLAINTEXT://{kafka}", Source.FLAG, f"--kafka {kafka}")
    if http is not None:
        found["kwire.http.listener"] = GivenValue(http, Source.FLAG, f"--http {http}")
    if data_dir is not None:
        found["log.dirs"] = GivenValue(data_dir, Source.FLAG, f"--data-dir {data_dir}")
    return found


def _setting_name(variable: str) -> str:
    return _UNDERSCORES.sub(lambda match: _MEANING[match[0]], variable).lower()
