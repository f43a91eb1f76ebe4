"""Profiles: the addresses and logins of servers, stored under a name in a file of the user.

    current: local
    profiles:
      local:
        bootstrap.servers: 127.0.0.1:9092
        kwire.http: http://127.0.0.1:8082
      production:
        bootstrap.servers: kafka.example.org:9093
        security.protocol: SASL_SSL
        sasl.username: alice

The names of the settings are Kafka's. `kwire.http` is the URL of the HTTP port.
"""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kwire.cli.framework.errors import UsageError

CONFIG_VARIABLE, PROFILE_VARIABLE = "KWIRE_CONFIG", "KWIRE_PROFILE"
FILE_BYTES_MAX = 1024 * 1024
HTTP_SETTING = "kwire.http"
SECRET_SETTINGS = (
    "sasl.password",
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
)
SETTINGS = (
    "bootstrap.servers",
    HTTP_SETTING,
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    *SECRET_SETTINGS,
)

Profile = dict[str, str]


class Profiles:
    """The content of the file: the profiles by name, and the one that is used unless another is named."""

    def __init__(self, current: str | None = None, by_name: dict[str, Profile] | None = None) -> None:
        self.current = current
        self.by_name = {} if by_name is None else by_name

    def named(self, name: str) -> Profile:
        """Return a profile. Raises UsageError if it does not exist."""
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UsageError(f"profile {name} does not exist, only {known}; create it with kwire profile set") from None


def profiles_path(environment: Mapping[str, str]) -> Path:
    if named := environment.get(CONFIG_VARIABLE):
        return Path(named)
    base = environment.get("XDG_CONFIG_HOME")
    folder = Path(base) if base else Path(environment.get("HOME") or Path.home()) / ".config"
    return folder / "kwire" / "profiles.yaml"


def read_profiles(path: Path) -> Profiles:
    """Return the profiles of a file. A file that does not exist has none. Raises UsageError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > FILE_BYTES_MAX:
        raise UsageError(f"{path}: larger than the maximum of {FILE_BYTES_MAX} bytes")
    # Imported here, because most users have no profiles, and the import takes longer than most commands run.
    import yaml

    try:
        found = _profiles(yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path}: not a file of profiles: {' '.join(str(error).split())}") from None
    if mode & (stat.S_IRGRP | stat.S_IROTH) and _has_secrets(found):
        print(f"kwire: {path} has a password and other users can read it: chmod 600 {path}", file=sys.stderr)
    return found


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replace the file. Only its owner can read it, because profiles may have passwords."""
    import yaml

    content = {
        **({"current": profiles.current} if profiles.current is not None else {}),
        "profiles": {name: dict(profile) for name, profile in sorted(profiles.by_name.items())},
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def chosen_profile(named: str | None, environment: Mapping[str, str]) -> tuple[str, Profile] | None:
    """Return the profile of --profile, of KWIRE_PROFILE, or the current one, with its name. None if there is none."""
    wanted = named or environment.get(PROFILE_VARIABLE)
    profiles = read_profiles(profiles_path(environment))
    name = wanted or profiles.current
    return (name, profiles.named(name)) if name else None


def shown_settings(profile: Profile) -> Profile:
    """Return the settings of a profile without passwords."""
    return {name: "[hidden]" if name in SECRET_SETTINGS else value for name, value in sorted(profile.items())}


def _profiles(content: Any) -> Profiles:
    if content is None:
        return Profiles()
    if not isinstance(content, dict) or not isinstance(content.get("profiles") or {}, dict):
        raise ValueError("expected `profiles:` with a profile for each name")
    by_name: dict[str, Profile] = {}
    for name, settings in (content.get("profiles") or {}).items():
        if not isinstance(settings or {}, dict):
            raise ValueError(f"profile {name}: expected settings such as `bootstrap.servers: 127.0.0.1:9092`")
        by_name[str(name)] = {str(key): str(value) for key, value in (settings or {}).items()}
        for key in by_name[str(name)]:
            check_setting(key)
    current = content.get("current")
    return Profiles(None if current is None else str(current), by_name)


def check_setting(name: str) -> None:
    """Raise ValueError if a profile cannot have this setting."""
    if name in SETTINGS:
        return
    from difflib import get_close_matches

    similar = get_close_matches(name, SETTINGS, n=1)
    hint = f"did you mean {similar[0]}?" if similar else f"settings are {', '.join(SETTINGS)}"
    raise ValueError(f"{name} is not a setting of a profile: {hint}")


def _has_secrets(profiles: Profiles) -> bool:
    return any(name in profile for profile in profiles.by_name.values() for name in SECRET_SETTINGS)
