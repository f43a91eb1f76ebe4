"""How commands connect and log in to a server: a properties file (`--command-config`) and the environment.

The file has Kafka's names of client settings, so a file of Kafka's own tools can be used. If it names no user, the
environment variables KWIRE_USER and KWIRE_PASSWORD do. Passwords are never arguments, because every user of a machine
can read the arguments of its processes.
"""

import argparse
import getpass
import os
import re
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kwire.config.properties import InvalidProperties, decode_properties

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
USER_VARIABLE, PASSWORD_VARIABLE = "KWIRE_USER", "KWIRE_PASSWORD"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_DEFAULT = "SCRAM-SHA-512"

# One option of a JAAS entry: name="value" or name=value, with backslashes before quotes.
_JAAS_OPTION = re.compile(r"""(?P<name>\w+)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")


class Login(NamedTuple):
    """A user and its password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user}, [hidden])"


class ClientSettings(NamedTuple):
    """How to connect to the Kafka port. `tls` and `login` are None if the protocol does not use them."""

    bootstrap_server: str
    protocol: str
    mechanism: str
    login: Login | None
    tls: ssl.SSLContext | None


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `client_settings_of` reads."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"the Kafka port (default: bootstrap.servers in the file of --command-config, or {BOOTSTRAP_DEFAULT})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="a properties file with Kafka's client settings, such as security.protocol, sasl.mechanism, "
        "sasl.jaas.config and ssl.truststore.location; without a user in it, KWIRE_USER and KWIRE_PASSWORD are used",
    )


def client_settings_of(options: argparse.Namespace) -> ClientSettings:
    """Return the settings of the options of `add_client_options` and of the environment. Raises ValueError."""
    settings = read_client_settings(options.command_config, os.environ)
    return settings._replace(bootstrap_server=options.bootstrap_server or settings.bootstrap_server)


def read_client_settings(path: Path | None, environment: Mapping[str, str]) -> ClientSettings:
    """Return the settings of a file (None if there is none) and of the environment. Raises ValueError."""
    given = {} if path is None else _read(path)
    try:
        return _settings(given, environment)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}" if path is not None else str(problem)) from None


def login_of(user: str | None, password: str | None, environment: Mapping[str, str]) -> Login | None:
    """Return the login of a user, or of the environment's user. A missing password is asked for at the terminal.

    Returns None if there is no user. Raises ValueError if the password is missing and there is no terminal.
    """
    name = user or environment.get(USER_VARIABLE)
    if not name:
        return None
    # The password of the environment belongs to the environment's user, if there is one.
    if password is None and environment.get(USER_VARIABLE, name) == name:
        password = environment.get(PASSWORD_VARIABLE)
    if password is None:
        if not sys.stdin.isatty():
            raise ValueError(f"the password of user {name} is missing: set {PASSWORD_VARIABLE}")
        password = getpass.getpass(f"Password of {name}: ")
    return Login(name, password)


def _read(path: Path) -> dict[str, str]:
    try:
        return decode_properties(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (InvalidProperties, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _settings(given: Mapping[str, str], environment: Mapping[str, str]) -> ClientSettings:
    user, password = _user_in(given)
    default = "SASL_PLAINTEXT" if user or environment.get(USER_VARIABLE) else "PLAINTEXT"
    protocol = _one_of(given, "security.protocol", default, PROTOCOLS)
    # librdkafka has both names.
    mechanism_name = "sasl.mechanisms" if "sasl.mechanisms" in given else "sasl.mechanism"
    mechanism = _one_of(given, mechanism_name, MECHANISM_DEFAULT, MECHANISMS)
    login = None
    if protocol.startswith("SASL_"):
        login = login_of(user, password, environment)
        if login is None:
            raise ValueError(
                f"security.protocol={protocol} needs a user: set sasl.jaas.config, or {USER_VARIABLE} and "
                f"{PASSWORD_VARIABLE}"
            )
    tls = None
    if protocol.endswith("SSL"):
        # Imported here, because most commands connect without TLS.
        from kwire.cli.client_tls import client_context

        tls = client_context(given)
    return ClientSettings(given.get("bootstrap.servers", BOOTSTRAP_DEFAULT), protocol, mechanism, login, tls)


def _user_in(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the user and the password in the file. `sasl.username` and `sasl.password` are librdkafka's names."""
    jaas = given.get("sasl.jaas.config")
    if jaas is None:
        return given.get("sasl.username"), given.get("sasl.password")
    options = {match["name"]: _unquoted(match["value"]) for match in _JAAS_OPTION.finditer(jaas)}
    if "username" not in options:
        raise ValueError('sasl.jaas.config has no user: expected …LoginModule required username="…" password="…";')
    return options["username"], options.get("password")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _one_of(given: Mapping[str, str], name: str, default: str, known: tuple[str, ...]) -> str:
    value = given.get(name, default).strip().upper()
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {given[name]!r}")
    return value
