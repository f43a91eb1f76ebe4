"""How to connect and log in to a server, from a properties file, the environment and a profile.

A properties file (--command-config) and a profile have Kafka's names of client settings, so a file of Kafka's own tools
can be used. Passwords are never arguments, because every user of a machine can read the arguments of its processes.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kwire.cli.connection.profiles import HTTP_SETTING, chosen_profile
from kwire.cli.framework.errors import UsageError
from kwire.kafka_client.login import MECHANISMS, Login
from kwire.server_addresses import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, HTTP_DEFAULT, HTTP_VARIABLE

if TYPE_CHECKING:
    import ssl

USER_VARIABLE, PASSWORD_VARIABLE = "KWIRE_USER", "KWIRE_PASSWORD"
HOW_TO_LOG_IN = f"log in with --user NAME, or {USER_VARIABLE} and {PASSWORD_VARIABLE}"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM_DEFAULT = "SCRAM-SHA-512"
# Together with the start of the program, a server that is down is reported within two seconds.
CONNECT_TIMEOUT_MS_DEFAULT = 1_500
REQUEST_TIMEOUT_MS_DEFAULT = 30_000
TIMEOUT_MS_MAX = 24 * 3_600_000

# One option of a JAAS entry: name="value" or name=value, with backslashes before quotes.
_JAAS_OPTION = re.compile(r"""(?P<name>\w+)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")


class Timeouts(NamedTuple):
    """How long to wait for a connection and for an answer."""

    connect_seconds: float = CONNECT_TIMEOUT_MS_DEFAULT / 1000
    request_seconds: float = REQUEST_TIMEOUT_MS_DEFAULT / 1000


class ClientSettings(NamedTuple):
    """How to connect to the Kafka port. `tls` and `login` are None if the protocol does not use them."""

    bootstrap_server: str
    protocol: str
    mechanism: str
    login: Login | None
    tls: "ssl.SSLContext | None"
    timeouts: Timeouts = Timeouts()


class HttpSettings(NamedTuple):
    """How to connect to the HTTP port. `tls` is None for http URLs, and for https with the system's certificates."""

    url: str
    login: Login | None = None
    tls: "ssl.SSLContext | None" = None
    timeouts: Timeouts = Timeouts()


class Source(NamedTuple):
    """Settings with Kafka's names, and where they are from. Those of an option come before the environment's."""

    given: Mapping[str, str]
    name: str
    is_option: bool


def source_of(command_config: Path | None, profile: str | None, environment: Mapping[str, str]) -> Source:
    """Return the settings of a properties file, or of the profile. Raises UsageError."""
    if command_config is not None:
        if profile is not None:
            raise UsageError("--command-config and --profile cannot be used together")
        return Source(_read(command_config), str(command_config), True)
    chosen = chosen_profile(profile, environment)
    return Source({}, "", False) if chosen is None else Source(chosen[1], f"profile {chosen[0]}", False)


def bootstrap_server_of(source: Source, environment: Mapping[str, str], given: str | None) -> str:
    """Return the address of the Kafka port."""
    in_source, in_environment = source.given.get("bootstrap.servers"), environment.get(BOOTSTRAP_VARIABLE)
    return given or _in_order(source, in_source, in_environment) or BOOTSTRAP_DEFAULT


def kafka_settings(
    source: Source, environment: Mapping[str, str], *, bootstrap_server: str | None = None, user: str | None = None
) -> ClientSettings:
    """Return how to connect to the Kafka port. Raises UsageError."""
    try:
        return _kafka_settings(source, environment, bootstrap_server, user)
    except ValueError as problem:
        raise UsageError(f"{source.name}: {problem}" if source.name else str(problem)) from None


def http_settings(
    source: Source,
    environment: Mapping[str, str],
    *,
    url: str | None = None,
    user: str | None = None,
    ca_file: Path | None = None,
) -> HttpSettings:
    """Return how to connect to the HTTP port. Raises UsageError."""
    in_file = source.given.get(HTTP_SETTING)
    chosen = url or _in_order(source, in_file, environment.get(HTTP_VARIABLE)) or HTTP_DEFAULT
    try:
        login = _login(source, environment, user)
        timeouts = _timeouts(source.given)
        has_tls_settings = any(name.startswith("ssl.") for name in source.given)
        tls = None
        if chosen.startswith("https:") and ca_file is None and has_tls_settings:
            from kwire.cli.connection.tls import client_context

            tls = client_context(source.given)
    except ValueError as problem:
        raise UsageError(f"{source.name}: {problem}" if source.name else str(problem)) from None
    if ca_file is not None:
        if not chosen.startswith("https:"):
            raise UsageError("--cacert is for https URLs")
        from kwire.cli.connection.tls import context_of_ca_file

        tls = context_of_ca_file(ca_file)
    return HttpSettings(chosen, login, tls, timeouts)


def login_of(user: str | None, password: str | None, environment: Mapping[str, str]) -> Login | None:
    """Return the login of a user, or of the environment's user. A missing password is asked for at the terminal.

    Returns None if there is no user. Raises UsageError if the password is missing and there is no terminal.
    """
    name = user or environment.get(USER_VARIABLE)
    if not name:
        return None
    # The password of the environment belongs to the environment's user, if there is one.
    if password is None and environment.get(USER_VARIABLE, name) == name:
        password = environment.get(PASSWORD_VARIABLE)
    if password is None:
        if not sys.stdin.isatty():
            raise UsageError(f"the password of user {name} is missing: set {PASSWORD_VARIABLE}")
        import getpass

        password = getpass.getpass(f"Password of {name}: ")
    return Login(name, password)


def _kafka_settings(
    source: Source, environment: Mapping[str, str], bootstrap_server: str | None, user: str | None
) -> ClientSettings:
    given = source.given
    address = bootstrap_server_of(source, environment, bootstrap_server)
    has_user = user or _user_in(given)[0] or environment.get(USER_VARIABLE)
    protocol = _one_of(given, "security.protocol", "SASL_PLAINTEXT" if has_user else "PLAINTEXT", PROTOCOLS)
    # librdkafka has both names.
    mechanism_name = "sasl.mechanisms" if "sasl.mechanisms" in given else "sasl.mechanism"
    mechanism = _one_of(given, mechanism_name, MECHANISM_DEFAULT, MECHANISMS)
    login = None
    if protocol.startswith("SASL_"):
        login = _login(source, environment, user)
        if login is None:
            raise ValueError(
                f"security.protocol={protocol} needs a user: set sasl.jaas.config, or {USER_VARIABLE} and "
                f"{PASSWORD_VARIABLE}"
            )
    tls = None
    if protocol.endswith("SSL"):
        # Imported here, because most commands connect without TLS.
        from kwire.cli.connection.tls import client_context

        tls = client_context(given)
    return ClientSettings(address, protocol, mechanism, login, tls, _timeouts(given))


def _in_order(source: Source, in_source: str | None, in_environment: str | None) -> str | None:
    return (in_source or in_environment) if source.is_option else (in_environment or in_source)


def _login(source: Source, environment: Mapping[str, str], user: str | None) -> Login | None:
    """Return the login of --user, or of the file, the environment or the profile, whichever comes first."""
    in_source, password = _user_in(source.given)
    name = user or _in_order(source, in_source, environment.get(USER_VARIABLE))
    if name != in_source:
        password = None
    elif not source.is_option and environment.get(USER_VARIABLE, name) == name:
        password = environment.get(PASSWORD_VARIABLE, password)
    return login_of(name, password, environment)


def _read(path: Path) -> dict[str, str]:
    # Imported here, because most commands have no such file.
    from kwire.config.properties import InvalidProperties, decode_properties

    try:
        return decode_properties(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (InvalidProperties, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None


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


def _timeouts(given: Mapping[str, str]) -> Timeouts:
    return Timeouts(
        _milliseconds(given, "socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS_DEFAULT) / 1000,
        _milliseconds(given, "request.timeout.ms", REQUEST_TIMEOUT_MS_DEFAULT) / 1000,
    )


def _milliseconds(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default)).strip()
    if not text.isdecimal() or not 0 < int(text) <= TIMEOUT_MS_MAX:
        raise ValueError(f"{name} must be a number from 1 to {TIMEOUT_MS_MAX}, got {text!r}")
    return int(text)
