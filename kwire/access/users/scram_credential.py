"""SCRAM credentials: what the server stores of a password (RFC 5802). The password cannot be computed from them."""

import hashlib
import hmac
from enum import Enum
from typing import Any, NamedTuple

# Kafka's bounds of the iteration count, and its default.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
ITERATIONS_DEFAULT = 4_096
# The salts of credentials that this server makes. Salts of clients are 12 bytes (the minimum of scramp) or more.
SALT_BYTES = 32
SALT_BYTES_MIN = 12
SALT_BYTES_MAX = 1_024
# A salted password has the size of a digest. Kafka does not check it.
SALTED_PASSWORD_BYTES_MAX = 1_024


class ScramMechanism(Enum):
    """A SCRAM mechanism: its name, the number that Kafka's protocol uses for it, and its hash function."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, mechanism: str, number: int, hash_name: str) -> None:
        self.mechanism = mechanism
        self.number = number
        self.hash_name = hash_name


BY_NUMBER = {one.number: one for one in ScramMechanism}


class ScramCredential(NamedTuple):
    """The credential of a user for one SCRAM mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, [hidden])"

    def as_json(self) -> dict[str, Any]:
        return {
            "salt": self.salt.hex(),
            "iterations": self.iterations,
            "stored_key": self.stored_key.hex(),
            "server_key": self.server_key.hex(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ScramCredential":
        return cls(
            bytes.fromhex(value["salt"]),
            value["iterations"],
            bytes.fromhex(value["stored_key"]),
            bytes.fromhex(value["server_key"]),
        )

    def is_of_password(self, mechanism: ScramMechanism, password: bytes) -> bool:
        """Return whether this is the credential of a password. It takes milliseconds, so call it in a thread."""
        salted = salted_password(mechanism, password, self.salt, self.iterations)
        # The time of the comparison does not depend on the keys: see CVE-2021-38153.
        return hmac.compare_digest(_stored_key(mechanism, salted), self.stored_key)


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return RFC 5802's SaltedPassword. It takes milliseconds, so call it in a thread."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    server_key = hmac.digest(salted, b"Server Key", mechanism.hash_name)
    return ScramCredential(salt, iterations, _stored_key(mechanism, salted), server_key)


def _stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    return hashlib.new(mechanism.hash_name, client_key).digest()
