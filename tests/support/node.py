"""A node without sockets: real topics on a real log store, a clock that stands still, and somebody who asks.

`running_node` is the other kind: the whole server, in this process and on ports of its own.

`QuietNode.ask` takes the way a request takes: encoded, decoded into a view of writable memory, handled, and the answer
encoded and decoded again in the version that was asked. `in_loop` lets an async function be a test.
"""

import asyncio
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self

import pytest
import uvloop
from msgspec.structs import replace

from kwire.access.access import Access, Unrestricted
from kwire.access.acl import Acl, AclFilter, Operation, Permission, ResourceType
from kwire.access.authorizer import AclAuthorizer, Authorizer, authorizer_of
from kwire.access.keys.keys import Keys
from kwire.access.login_limits import LoginLimits
from kwire.access.principal import Principal
from kwire.access.quotas.quotas import Quotas
from kwire.access.sasl.authentication import Authentication
from kwire.access.usage.key_usage import KeyUsage
from kwire.access.users.users import Users
from kwire.broker.admin.dynamic_configs import DynamicConfigs
from kwire.broker.admin.features import TRANSACTION_VERSION, Features
from kwire.broker.admin.log_dirs import LogDirs
from kwire.broker.admin.metadata_log import MetadataLog
from kwire.broker.admin.producer_ids import ProducerIds
from kwire.broker.batch_validation import ValidationWorker
from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.fetch.sessions import FetchSessions
from kwire.broker.maintenance.relocation import Relocations
from kwire.broker.partition import Partition, Syncs
from kwire.broker.topics.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NewTopic, Topic, Topics
from kwire.concurrency.disk_lanes import DiskLanes, Lane
from kwire.concurrency.work_allowance import WorkAllowance
from kwire.config import load
from kwire.config.resources.topic import TopicSettings
from kwire.coordinator.group.consumer.configured_settings import ConfiguredGroupSettings
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.definitions import DefinedGroupSettings, GroupDefinitions
from kwire.coordinator.group.settings import GroupSettings
from kwire.coordinator.group.topics_view import CatalogueView
from kwire.coordinator.internal_topic_log import InternalTopicLog
from kwire.coordinator.transaction.admission import TransactionAdmission
from kwire.coordinator.transaction.coordinator import TransactionCoordinator
from kwire.coordinator.transaction.marker_appender import MarkerAppender
from kwire.coordinator.transaction.settings import TransactionSettings
from kwire.coordinator.web_groups.local import LocalWebGroups
from kwire.coordinator.web_groups.values import GroupDefaults
from kwire.handlers import HANDLERS
from kwire.handlers.shared.context import BlockingContinuation, Context, NodeFacts, Services
from kwire.handlers.shared.views import Views
from kwire.metastore import EmbeddedMetaStore
from kwire.node import Node
from kwire.streams.event_store.commit_pipeline import CheckedBatch
from kwire.streams.event_store.drafts import EventDraft
from kwire.streams.event_store.event_store import EventStore
from kwire.streams.event_store.event_topics import EventTopics
from kwire.streams.local import LocalLog
from kwire.streams.local_directory import LocalDirectory
from kwire.streams.topic_directory import StreamTopic
from kwire.wire.codec import ELEMENTS_MAX, decode_message, decoder, encode_message
from kwire.wire.frame import FrameReader, ReceiveMemory
from kwire.wire.names import Names
from kwire.wire.schema import Api, message_of
from storage.batch.record_batch import BatchHeader
from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files
from storage.disk.journal import Journal
from storage.log.syncing import sync_all
from tests.support.access import ADMIN, ALICE, acl
from tests.support.batches import UnsyncedFiles, run_now
from tests.support.clock import ManualClock
from tests.support.effort import repetitions

P = ParamSpec("P")

# As the time limits of pytest, it rises with the repetitions of `soak`.
TEST_TIMEOUT_S = float(repetitions(quick=90, full=90))
CLUSTER_ID = "test-cluster"
NODE_ID = 1
DIRECTORY_ID = bytes(range(16))
# The memory for requests, unless a test has less.
MEMORY_BYTES = 2**30
# Requests are handled in one go here, however much there is to do.
ANY_WEIGHT = 2**62


def in_every_version(api: Api) -> pytest.MarkDecorator:
    """Run a test once for each version that is served."""
    return pytest.mark.parametrize("version", list(api.versions))


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in an event loop of its own, and not for ever."""
    return _in_loop(test, asyncio.new_event_loop)


def in_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The same in the event loop that a server runs in."""
    return _in_loop(test, uvloop.new_event_loop)


def _in_loop(
    test: Callable[P, Coroutine[Any, Any, None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), TEST_TIMEOUT_S))

    return run


class FakePeer:
    """A client that is not there, but for the memory of its requests."""

    client_host = "192.0.2.7"
    endpoint = ("broker.example", 9092)
    is_frame_shared = True
    authentication: Authentication | None = None

    def __init__(self, memory: ReceiveMemory | None = None) -> None:
        self.reader = FrameReader(memory or ReceiveMemory(MEMORY_BYTES), MEMORY_BYTES)
        self.muted_s = 0.0

    def mute(self, seconds: float) -> None:
        self.muted_s = max(self.muted_s, seconds)

    def reserve(self, size_bytes: int) -> bool:
        return self.reader.reserve(size_bytes)

    def release(self, size_bytes: int) -> None:
        self.reader.release(size_bytes)


class SyncAtOnce:
    """Sync rounds that are over before the append returns."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def add(self, partition: Partition) -> None:
        sync = partition.begin_sync()
        if sync is not None:
            (failure,) = sync_all(self._files, (), [sync])
            partition.end_sync(sync, partition.appended_bytes, failure)

    def add_within(self, partition: Partition, delay_ms: int) -> None:
        self.add(partition)


async def run_here(function: Callable[..., Any], *args: Any) -> Any:
    """What a worker is there for."""
    return function(*args)


class GivenChecks:
    """What a test has in the place of schemas; all is taken until it says otherwise."""

    def __init__(self) -> None:
        self.check_draft: Callable[[StreamTopic, EventDraft], Awaitable[object] | None] = lambda topic, draft: None
        self.check_batch: Callable[[Topic, memoryview, BatchHeader], CheckedBatch] = lambda topic, batch, header: ()


class QuietNode:
    """Everything a handler may use. `restart` builds it anew from what is on disk, as the next start of a server."""

    def __init__(
        self,
        directory: Path,
        *settings: str,
        files: Files | None = None,
        syncs: Syncs | None = None,
        more_dirs: Sequence[Path] = (),
        new_cold_reads: Callable[[Lane], ColdReads] = ColdReads,
    ) -> None:
        """`directory` has the journal; partitions may be in `more_dirs` too."""
        self._new_cold_reads = new_cold_reads
        self.directory = directory
        self.clock = ManualClock()
        self.files = files or UnsyncedFiles()
        self._syncs = syncs or SyncAtOnce(self.files)
        self.config = load(data_dir=",".join(map(str, (directory, *more_dirs))), settings=settings)
        self._starts = 0
        self.event_checks = GivenChecks()
        self.peer = FakePeer()
        # The rights of whoever asks; None stands for those of `principal` after `restrict`, else for every right.
        self.access: Access | None = None
        self._is_restricted = False
        self.principal = ALICE
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _validated(
        self, batch: memoryview, header: BatchHeader, settings: TopicSettings
    ) -> Awaitable[tuple[memoryview, BatchHeader]]:
        return self.services.validation.validate(batch, header, settings, self.clock.now_ms())

    def _open(self) -> None:
        self.store = LogDirectories([str(path) for path in self.config.log.data_dirs], self.files, run_now)
        self.store.lock()
        self.lanes = DiskLanes()
        journal = Journal.open(str(self.directory / "metastore.journal"), self.files)
        self.metastore = EmbeddedMetaStore(journal, self.lanes.metadata)
        self.configs = DynamicConfigs(self.metastore, self.config)
        self.cold_reads = self._new_cold_reads(self.lanes.read)
        self.topics = Topics(
            self.metastore,
            self.store,
            self.configs.config,
            self.clock,
            self._starts,
            self._syncs,
            self.lanes,
            partial(LocalLog, self.cold_reads, self._validated),
        )
        self.configs.listen(self.topics.reconfigure)
        self.definitions = GroupDefinitions(self.metastore)
        self.groups = GroupCoordinator(
            log=InternalTopicLog(self.topics, OFFSETS_TOPIC),
            clock=self.clock,
            call_later=lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call),
            call_soon=lambda call: asyncio.get_running_loop().call_soon(call),
            settings=GroupSettings(
                offsets_topic_num_partitions=self.config.groups.offsets_partition_count,
                initial_rebalance_delay_ms=self.config.groups.initial_rebalance_delay_ms,
            ),
            topics=CatalogueView(self.topics.catalogue),
            consumer_settings=DefinedGroupSettings(self.definitions, ConfiguredGroupSettings(self.configs)),
        )
        features = Features(self.metastore, HANDLERS)
        self.markers = MarkerAppender(self.topics, self.groups, lambda call: asyncio.get_running_loop().call_soon(call))
        self.transactions = TransactionCoordinator(
            log=InternalTopicLog(self.topics, TRANSACTIONS_TOPIC),
            clock=self.clock,
            call_later=lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call),
            settings=TransactionSettings(
                state_log_num_partitions=self.config.transactions.partition_count,
                max_timeout_ms=self.config.transactions.timeout_ms_max,
            ),
            write_markers=self.markers.write_all,
            transaction_version=lambda: features.level(TRANSACTION_VERSION),
            coordinator_epoch=self._starts,
        )
        self.web_groups = self.new_web_groups()
        self.store.cordoned_dirs = self.configs.config.log.cordoned_dirs
        self.relocations = Relocations(self.topics, self.store, self.configs.config.log.move_bytes_per_second_max)
        self.keys = Keys(self.metastore, self.clock)
        self.key_usage = KeyUsage(self.metastore, self.clock, self.keys, NODE_ID)
        self.services = Services(
            apis={key: handler.api for key, handler in HANDLERS.items()},
            node=NodeFacts(NODE_ID, CLUSTER_ID, self.config.rack),
            configs=self.configs,
            clock=self.clock,
            topics=self.topics,
            producer_ids=ProducerIds(self.metastore),
            features=features,
            metadata_log=MetadataLog(self.metastore, self._starts, DIRECTORY_ID),
            groups=self.groups,
            transactions=self.transactions,
            transaction_admission=TransactionAdmission(self.transactions),
            markers=self.markers,
            cold_reads=self.cold_reads,
            fetch_sessions=FetchSessions(self.clock, self.config.network.fetch_session_slots),
            relocations=self.relocations,
            log_dirs=LogDirs(self.topics, self.store, self.relocations, self.files),
            event_store=self._new_event_store(),
            validation=ValidationWorker(run_here),
            work_allowance=WorkAllowance(ANY_WEIGHT),
            authorizer=self._new_authorizer(),
            quotas=Quotas(self.metastore, self.clock.monotonic),
            key_usage=self.key_usage,
            users=Users(self.metastore),
            login_limits=LoginLimits(self.clock),
            keys=self.keys,
        )
        self.become(self.principal)

    def new_web_groups(self, defaults: GroupDefaults | None = None) -> LocalWebGroups:
        topics = LocalDirectory(self.topics, self.config)
        return LocalWebGroups(self.groups, self.definitions, topics, self.topics.offsets_topic, self.clock, defaults)

    # --- rights: everything is allowed until a test calls `restrict`

    def restrict(self) -> None:
        """From now on clients need rights, which ADMIN alone has."""
        self._is_restricted = True
        self.services = replace(self.services, authorizer=self._new_authorizer())
        self.become(self.principal)

    def _new_authorizer(self) -> Authorizer:
        if self._is_restricted:
            return AclAuthorizer(self.metastore, [ADMIN], keys=self.keys)
        return authorizer_of(self.config.access, self.metastore, keys=self.keys)

    @property
    def authorizer(self) -> AclAuthorizer:
        authorizer = self.services.authorizer
        assert isinstance(authorizer, AclAuthorizer), "`restrict` was not called"
        return authorizer

    def become(self, principal: Principal) -> None:
        """Let later requests come from this principal, as on a new connection."""
        self.principal = principal
        host = self.peer.client_host
        restricted = self.services.authorizer.access(principal, host)
        self.set_access(restricted if self._is_restricted else Unrestricted(principal, host))

    def set_access(self, access: Access) -> None:
        self.views = Views(self.services, access)

    async def allow(self, operation: Operation, resource_type: ResourceType, name: str, **more: Any) -> Acl:
        """Give `principal` a right; `pattern_type`, `host` and `principal` as in `acl`."""
        given = acl(operation, resource_type, name, **{"principal": self.principal, **more})
        await self.authorizer.add([given])
        return given

    async def deny(self, operation: Operation, resource_type: ResourceType, name: str, **more: Any) -> Acl:
        return await self.allow(operation, resource_type, name, permission=Permission.DENY, **more)

    async def revoke(self, *acls: Acl) -> None:
        """Remove these ACLs; all of them if none are named."""
        exact = [
            AclFilter(one.resource_type, one.name, one.pattern_type, str(one.principal), one.host, *one[-2:])
            for one in acls
        ]
        await self.authorizer.remove(exact or [AclFilter()])

    def _new_event_store(self) -> EventStore:
        """Not opened: a test that needs it does so, in its loop."""
        return EventStore(self.topics, self.metastore, self.clock, self._syncs, self.event_checks)

    @property
    def event_store(self) -> EventStore:
        return self.services.event_store

    @property
    def event_topics(self) -> EventTopics:
        """A new one each time, as after a restart; schemas are judged right here."""
        return EventTopics(self.topics, self.metastore, run_here)

    async def create_event_topic(self, name: str = "orders", **configs: str) -> Topic:
        """As POST /topics makes one, without schemas."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.topics.check_new_name(name)
        (topic,) = await self.topics.create([NewTopic(name, 1, {"kwire.events": "true", **named})])
        return topic

    def close(self) -> None:
        self.services.users.close()
        self.transactions.close()
        self.groups.close()
        self.cold_reads.close()
        self.lanes.close()
        self.store.close()
        self.metastore.close()

    def restart(self) -> None:
        self.close()
        self._starts += 1
        self._open()

    async def create(self, name: str, partition_count: int = 1, **configs: str) -> Topic:
        """A new topic; `max_message_bytes="10"` sets `max.message.bytes`."""
        new = NewTopic(name, partition_count, {key.replace("_", "."): value for key, value in configs.items()})
        self.topics.check(new)
        (topic,) = await self.topics.create([new])
        return topic

    async def create_partition(self, name: str = "t", **configs: str) -> Partition:
        """The one partition of a new topic."""
        return (await self.create(name, 1, **configs)).partitions[0]

    async def ask(self, request: Any, version: int) -> Any:
        """What a client gets that sends this request in this version; None if it gets nothing."""
        views = self.views if self.access is None else Views(self.services, self.access)
        answer = self.start(request, version, views)
        if isinstance(answer, BlockingContinuation):
            answer = await answer.rest
        if inspect.isawaitable(answer):
            answer = await answer
        return None if answer is None else received(answer, version, views.names)

    def start(self, request: Any, version: int, views: Views | None = None) -> Any:
        """The ordered part of a request: its answer, or an awaitable of it."""
        handler = HANDLERS[message_of(type(request)).key]
        assert handler.api.request is type(request)
        views = views or (self.views if self.access is None else Views(self.services, self.access))
        encoded = memoryview(bytearray(encode_message(request, version)))
        if views.names is None:
            asked = decode_message(type(request), version, encoded)
        else:
            decode = decoder(type(request), version, is_scoped=True)
            asked = decode(encoded, ELEMENTS_MAX, views.names.prefix)
        limits = self.key_usage.limits_of(views.access.principal)
        return handler.handle(Context(self.services, self.peer, version, "test", views, limits=limits), asked)


@asynccontextmanager
async def running_node(
    directory: Path,
    *settings: str,
    prepare: Callable[[Node], None] = lambda node: None,
    kafka: str | None = "127.0.0.1:0",
) -> AsyncIterator[Node]:
    """A node that serves; stopped in the end unless the test has done so. `prepare` is called before it starts.

    With `kafka=None` the settings name the listeners.
    """
    config = load(data_dir=str(directory), kafka=kafka, http="127.0.0.1:0", settings=settings)
    node = Node(config)
    prepare(node)
    # A node collects garbage when it starts; it need not visit every object of every loaded test module.
    gc.freeze()
    await node.start()
    try:
        yield node
    finally:
        if node._is_ready:
            # A test that is over its time is waited for until it has cleaned up: that must not take for ever either.
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await node.stop()
        _put_down(node)
        # A server keeps what it has for its lifetime; a test does not.
        gc.unfreeze()


def _put_down(node: Node) -> None:
    """End what would keep the loop going when a test failed in the middle of a stop."""
    for ending in (node._sweep, node._stalls, node._maintenance.idle_logs, node._maintenance.retention):
        ending.close()
    for connection in tuple(node._shared.connections):
        connection.abort()


def received(answer: Any, version: int, names: Names | None = None) -> Any:
    """An answer as it looks after the wire: what the version does not carry has its default."""
    return decode_message(type(answer), version, encode_message(answer, version, names))
