"""Users in a metadata store, and the client side of SCRAM, written from RFC 5802 without the package of the server."""

import base64
import hashlib
import hmac
from pathlib import Path

from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.access.users.users import Users
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import EmbeddedMetaStore
from storage.disk.journal import Journal
from tests.support.batches import UnsyncedFiles

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *HASHES)


class UserStore:
    """A journal, and the users that are read from it at each `open`."""

    def __init__(self, path: Path, audit: Audit = NO_AUDIT) -> None:
        self.path = path
        self._audit = audit
        self.salt_secret: bytes | None = None
        self._opened: list[tuple[EmbeddedMetaStore, Users]] = []

    def open(self) -> Users:
        self.close()
        metastore = EmbeddedMetaStore(Journal.open(str(self.path), UnsyncedFiles()), DiskLanes().metadata)
        self._opened.append((metastore, Users(metastore, self._audit, self.salt_secret)))
        return self._opened[-1][1]

    def close(self) -> None:
        while self._opened:
            metastore, users = self._opened.pop()
            users.close()
            metastore.close()


class ScramClient:
    """The client of one SCRAM exchange: `first`, then `final` of the server's first message."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL", gs2: str = "n,,"
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._gs2 = gs2
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        # What the server sends if it knows the user's keys.
        self.server_final = b""

    def first(self) -> bytes:
        return (self._gs2 + self._bare).encode()

    def final(self, server_first: bytes, *, nonce: str | None = None, binding: str | None = None) -> bytes:
        """The proof. Another nonce or channel binding than the right one is signed as if it were right."""
        parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(parts["s"]), int(parts["i"]))
        bound = base64.b64encode((self._gs2 if binding is None else binding).encode()).decode()
        without_proof = f"c={bound},r={parts['r'] if nonce is None else nonce}"
        signed = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self.server_final = b"v=" + base64.b64encode(hmac.digest(server_key, signed, self._hash))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()
