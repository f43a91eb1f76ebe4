"""kwire with API keys that were created before it started."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from benchmark.servers import Kwire, Launch
from kwire.access.keys.key import Key, KeyLimits
from kwire.access.keys.key_format import Credentials, hash_of, new_key_id, new_secret
from kwire.access.keys.keys import Keys
from kwire.access.keys.stored_key import KEY_PREFIX, value_of
from kwire.clock import SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.metastore import Change, EmbeddedMetaStore
from kwire.metastore.interface import ABSENT
from storage.disk.files import Files

KEYS_PER_SCOPE = 4
KEYS_PER_COMMIT = 100
# A limit that is not reached, so that events are counted.
LIMITS = KeyLimits(max_events=10**9, max_subscriptions=5)


class KeyedKwire(Kwire):
    """kwire with some keys. `name` is its name in samples."""

    def __init__(self, settings: Mapping[str, object], name: str, key_count: int) -> None:
        super().__init__({"kwire.http.authentication": "key", **settings})
        self.name = name
        self._key_count = key_count
        self.credentials: list[Credentials] = []

    def prepare(self, directory: Path) -> Launch:
        self.credentials = asyncio.run(create_keys(directory / "data", self._key_count))
        return super().prepare(directory)


async def create_keys(data_dir: Path, count: int) -> list[Credentials]:
    """Create keys in a new data directory, in few commits."""
    data_dir.mkdir(parents=True)
    lanes = DiskLanes()
    metastore = EmbeddedMetaStore.open(str(data_dir), Files(), lanes)
    keys = Keys(metastore, SystemClock())
    credentials = [Credentials(new_key_id(), new_secret()) for _ in range(count)]
    changes = [
        Change(KEY_PREFIX + one.id, value_of(await _key(keys, one, number)), ABSENT)
        for number, one in enumerate(credentials)
    ]
    for at in range(0, count, KEYS_PER_COMMIT):
        await metastore.commit(changes[at : at + KEYS_PER_COMMIT])
    metastore.close()
    lanes.close()
    return credentials


async def _key(keys: Keys, credentials: Credentials, number: int) -> Key:
    return Key(
        id=credentials.id,
        scope=await keys.scopes.ensure(f"tenant-{number // KEYS_PER_SCOPE}"),
        is_root=False,
        limits=LIMITS,
        alias_of=None,
        description="",
        secret_hash=hash_of(credentials.secret),
        secret_number=1,
        previous_hash=b"",
        previous_until_ms=0,
        created_ms=SystemClock().now_ms(),
        expires_ms=0,
        used_ms=0,
    )
