"""The properties file with the security settings of a client. Kafka's tools and our own programs read the same file."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MECHANISM = "SCRAM-SHA-256"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER, PASSWORD = "sasl.username", "sasl.password"


@dataclass(frozen=True)
class User:
    """The name and the password of a user that exists only in a benchmark."""

    name: str
    password: str


def sasl_config(user: User) -> dict[str, str]:
    """Return the settings of a SASL_PLAINTEXT client. Java reads `sasl.jaas.config`, our programs the other two."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user.name}" password="{user.password}";',
        USER: user.name,
        PASSWORD: user.password,
    }


def basic_authorization(user: User) -> dict[str, str]:
    """Return the header of an HTTP request of this user."""
    encoded = base64.b64encode(f"{user.name}:{user.password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def tls_config(ca: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}


def write_config(path: Path, config: Mapping[str, str]) -> Path:
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return path


def read_user(path: Path) -> User:
    """Return the user of a properties file that `sasl_config` made."""
    config = dict(line.split("=", 1) for line in path.read_text().splitlines())
    return User(config[USER], config[PASSWORD])
