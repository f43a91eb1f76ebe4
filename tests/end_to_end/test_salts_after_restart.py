"""A restart does not reveal which users exist: SCRAM shows the same salts as before, for unknown users, too."""

import base64
from pathlib import Path

from tests.support.sasl_server import SaslServer, SaslSocket, running_sasl_server
from tests.support.users import HASHES, ScramClient


def salts(server: SaslServer) -> dict[tuple[str, str], bytes]:
    """The salts of a known and of an unknown user, for each mechanism."""
    found = {}
    for user in ("alice", "nobody"):
        for mechanism in HASHES:
            with SaslSocket(server.address) as connection:
                connection.handshake(mechanism)
                first = connection.authenticate(ScramClient(mechanism, user, "wrong").first()).auth_bytes
                parts = dict(part.split("=", 1) for part in first.decode().split(","))
                found[user, mechanism] = base64.b64decode(parts["s"])
    return found


def test_salts_stay_the_same_after_a_restart(tmp_path: Path) -> None:
    with running_sasl_server(tmp_path) as server:
        server.set_password("alice")
        key_file = server.process.data_dir / "secrets.key"
        assert key_file.stat().st_mode & 0o777 == 0o600
        before = salts(server)
        assert len(set(before.values())) == len(before)
        key = key_file.read_bytes()
    with running_sasl_server(tmp_path) as server:
        assert salts(server) == before
        assert key_file.read_bytes() == key
