"""When the keys of a node are read and created, and when they are not."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kwire.access.sasl.salt_secret import salt_secret
from kwire.access.secrets.key_file import KEY_BYTES, read_key_file
from kwire.access.secrets.node_keys import ENCRYPTED, KeyUnavailable, NodeKeys, has_encrypted
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config.sasl import ListenerSasl, SaslConfig
from kwire.metastore import Change, EmbeddedMetaStore
from storage.disk.journal import Journal
from tests.support.batches import UnsyncedFiles
from tests.support.node import in_loop

ENCRYPTED_WEBHOOK = Change("webhooks/1", {ENCRYPTED: {"url": "1:0011223344556677:AAAA"}}, 0)


class World:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "secrets.key"
        self.lanes = DiskLanes()
        self.metastore = EmbeddedMetaStore(
            Journal.open(str(directory / "journal"), UnsyncedFiles()), self.lanes.metadata
        )

    def keys(self) -> NodeKeys:
        """The keys, as the next start finds them."""
        return NodeKeys(str(self.path), partial(has_encrypted, self.metastore), UnsyncedFiles(), self.lanes.survey)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.metastore.close()
    made.lanes.close()


@in_loop
async def test_the_key_is_created_when_it_is_first_needed_and_then_stays(world: World) -> None:
    keys = world.keys()
    assert not world.path.exists()
    cipher, other = await asyncio.gather(keys.cipher(), keys.cipher())
    assert cipher.key_id == other.key_id == read_key_file(str(world.path))[0].key_id
    assert (await world.keys().cipher()).decrypt(cipher.encrypt("text", "c"), "c") == "text"


@in_loop
async def test_no_key_is_created_over_encrypted_values(world: World) -> None:
    await world.metastore.commit([ENCRYPTED_WEBHOOK])
    for _ in range(2):
        with pytest.raises(KeyUnavailable, match="is missing, and stored secrets are encrypted"):
            await world.keys().cipher()
        with pytest.raises(KeyUnavailable):
            await world.keys().stable_secret("salts")
    assert not world.path.exists()


@in_loop
async def test_an_invalid_file_is_not_replaced(world: World) -> None:
    for content in (b"", b"not a key\n"):
        world.path.write_bytes(content)
        with pytest.raises(KeyUnavailable, match="cannot be used"):
            await world.keys().cipher()
        assert world.path.read_bytes() == content


@in_loop
async def test_a_file_that_cannot_be_created_is_a_clear_problem(world: World) -> None:
    world.path = world.path / "no such folder" / "key"
    with pytest.raises(KeyUnavailable, match="cannot be created"):
        await world.keys().cipher()


@in_loop
async def test_a_stable_secret_survives_a_rotation(world: World) -> None:
    before = await world.keys().stable_secret("salts")
    assert before == await world.keys().stable_secret("salts") != await world.keys().stable_secret("other")
    world.path.write_bytes(base64.b64encode(b"n" * KEY_BYTES) + b"\n" + world.path.read_bytes())
    keys = world.keys()
    assert before == await keys.stable_secret("salts")
    assert (await keys.cipher()).key_id != read_key_file(str(world.path))[1].key_id


@in_loop
async def test_a_file_that_others_can_read_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.keys().cipher()
    assert "can be read by other users" not in caplog.text
    world.path.chmod(0o640)
    await world.keys().cipher()
    assert "can be read by other users" in caplog.text


def test_nothing_is_imported_before_a_secret_exists() -> None:
    """The start of a server without secrets does not load `cryptography`."""
    code = "import sys, kwire.node, kwire.access.secrets.node_keys; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


@in_loop
async def test_a_key_is_created_for_salts_only_if_a_listener_has_scram(world: World) -> None:
    for mechanisms in ((), (("PLAIN",),)):
        assert await salt_secret(sasl_of(*mechanisms), world.keys()) is None
    assert not world.path.exists()
    secret = await salt_secret(sasl_of(("PLAIN", "SCRAM-SHA-512")), world.keys())
    assert secret is not None
    assert secret == await salt_secret(sasl_of(("SCRAM-SHA-256",)), world.keys())


@in_loop
async def test_without_a_usable_key_the_salts_are_random(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.path.write_bytes(b"not a key")
    assert await salt_secret(sasl_of(("SCRAM-SHA-512",)), world.keys()) is None
    assert "SCRAM shows other salts for unknown users" in caplog.text


def sasl_of(*mechanisms: tuple[str, ...]) -> SaslConfig:
    """The settings of one listener for each tuple of mechanisms."""
    return SaslConfig({str(number): ListenerSasl(one, 0) for number, one in enumerate(mechanisms)}, 0, 0)
