"""Webhooks of a bridge: it takes over their state on the cluster, delivers, and stops if another bridge takes over.

A bridge that cannot use the state on the cluster serves everything else, and tries again. If it has lost the state and
no other bridge has taken it over, for example because the cluster was down for minutes, it takes it over again.
"""

import asyncio
import logging
import socket
import uuid
from typing import Final

from kwire.access.audit.entries import Audit
from kwire.access.authorizer import Authorizer
from kwire.access.secrets.node_keys import NodeKeys, key_path
from kwire.broker.topics.names import check_name
from kwire.clock import Clock
from kwire.concurrency.disk_lanes import Lane
from kwire.config import Config
from kwire.descriptors import Descriptors
from kwire.errors import ErrorCode, KafkaError, WebhooksUnavailable
from kwire.server.outbound.webhook_delivery import WebhookDelivery
from kwire.streams.commands import WebhookCommands
from kwire.streams.local_commands import LocalWebhooks
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_webhooks.definition_store import RemoteDefinitionStore, has_encrypted
from kwire.streams.remote_webhooks.state_topic import RemoteStateTopic
from kwire.streams.remote_webhooks.stored_state import Owner
from kwire.streams.topic_directory import TopicFinder
from kwire.streams.webhooks.definition_store import NoDefinitionStore
from kwire.streams.webhooks.state_log import NoStateLog, TopicStateLog
from kwire.streams.webhooks.statistics import WebhookStatistics
from kwire.streams.webhooks.webhooks import WebhookStorage
from kwire.web.services import WebhookServices
from storage.disk.files import Files

log = logging.getLogger("kwire.webhooks")

# How long the start of a bridge waits for its webhooks. Then they are opened while it serves.
START_SECONDS: Final = 30.0
# How long the state on the cluster may take to be taken over and read.
OPEN_SECONDS: Final = 120.0
# The pause before the next attempt.
PAUSE_SECONDS: Final = 5.0


class TakenOver(Exception):
    """Another bridge delivers the webhooks that this one has delivered before."""

    def __init__(self, owner: Owner, topic: str) -> None:
        super().__init__(
            f"another bridge, on host {owner.host}, has taken over the webhooks in topic {topic!r}; restart this one "
            "to take them back"
        )


class BridgeWebhooks:
    """Use it in the event loop's thread: `start`, then `close` before the logs are closed."""

    def __init__(
        self,
        logs: RemoteLogs,
        topics: TopicFinder,
        clock: Clock,
        config: Config,
        descriptors: Descriptors,
        authorizer: Authorizer,
        audit: Audit,
        files: Files,
        lane: Lane,
    ) -> None:
        """`lane` reads the key file. Raises ValueError if the name of the state topic is not valid."""
        self._logs = logs
        self._topics = topics
        self._clock = clock
        self._config = config
        self._descriptors = descriptors
        self._authorizer = authorizer
        self._audit = audit
        self._files = files
        self._lane = lane
        self._owner = Owner(uuid.uuid4().hex, socket.gethostname())
        # Whether this bridge has owned the state and lost it.
        self._has_lost = False
        self._delivery: WebhookDelivery | None = None
        self._commands: WebhookCommands | None = None
        # Why there is no delivery; empty if there is, or if webhooks are disabled.
        self._problem = ""
        self._task: asyncio.Task[None] | None = None
        self._is_first_attempt_over = asyncio.Event()
        try:
            check_name(config.webhooks.bridge_topic)
        except KafkaError as error:
            raise ValueError(f"kwire.bridge.webhooks.topic: {error}") from None

    async def start(self) -> None:
        """Deliver where the last owner of the state ended. If that is not possible now, it is tried again."""
        if not self._config.webhooks.is_enabled:
            return
        self._problem = "they are being opened"
        self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._is_first_attempt_over.wait()
        except TimeoutError:
            log.warning("the webhooks are not open after %g s, the bridge serves without them", START_SECONDS)

    async def close(self) -> None:
        """Stop to deliver, and store the results of running deliveries."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # --- what is served

    @property
    def problem(self) -> str:
        """Why this bridge does not deliver webhooks; empty if it does, or if they are disabled."""
        return self._problem

    def services(self) -> WebhookServices:
        return WebhookServices(self._clock, self._current_commands)

    def statistics(self) -> WebhookStatistics | None:
        return None if self._delivery is None else self._delivery.webhooks.statistics()

    def may_have_any_in(self, topic: str) -> bool:
        """Whether a webhook delivers events of a topic, or may do so when the webhooks are open."""
        return bool(self._problem) or (self._delivery is not None and self._delivery.webhooks.has_any_in(topic))

    def _current_commands(self) -> WebhookCommands | None:
        if self._problem:
            raise WebhooksUnavailable(self._problem)
        return self._commands

    # --- opening and losing them

    async def _run(self) -> None:
        """Deliver until another bridge has taken over."""
        while True:
            try:
                if not self._config.webhooks.is_persisted:
                    await self._deliver(WebhookStorage(NoDefinitionStore(), NoStateLog()), None)
                await self._own()
                continue
            except TakenOver as taken_over:
                self._report(str(taken_over))
                return
            except KafkaError as error:
                self._report(str(error))
            except Exception:
                log.exception("the webhooks could not be opened")
                self._report("of an error that is in the log of the bridge")
            await asyncio.sleep(PAUSE_SECONDS)

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            log.error("webhooks are not delivered: %s", problem)
            self._problem = problem
        self._is_first_attempt_over.set()

    async def _own(self) -> None:
        """Take over the state, and deliver until it is lost."""
        topic = RemoteStateTopic(self._logs, self._config.webhooks.bridge_topic, self._owner, self._clock)
        keys = NodeKeys(key_path(self._config), lambda: has_encrypted(topic), self._files, self._lane)
        definitions = RemoteDefinitionStore(topic, keys, self._clock)
        try:
            await self._open(topic, definitions)
            state = TopicStateLog(topic, self._clock, asyncio.get_running_loop().call_later)
            await self._deliver(WebhookStorage(definitions, state), topic)
        finally:
            self._has_lost |= topic.lost.done()
            await topic.close()

    async def _open(self, topic: RemoteStateTopic, definitions: RemoteDefinitionStore) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if await topic.read(is_complete=self._has_lost):
                    owner = topic.stored_owner
                    if self._has_lost and owner is not None and owner != self._owner:
                        raise TakenOver(owner, topic.name)
                    await definitions.check_keys()
                    await topic.take_over()
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"topic {topic.name!r} was not read within {OPEN_SECONDS:g} s"
            ) from None

    async def _deliver(self, storage: WebhookStorage, topic: RemoteStateTopic | None) -> None:
        """Deliver until the state is lost."""
        delivery = WebhookDelivery(
            self._topics,
            storage,
            self._clock,
            self._config.webhooks,
            self._descriptors,
            self._authorizer,
            self._audit,
        )
        try:
            await delivery.open()
            self._commands, self._delivery, self._problem = LocalWebhooks(delivery.webhooks), delivery, ""
            self._is_first_attempt_over.set()
            lost = await topic.lost if topic is not None else await asyncio.Future[KafkaError]()
            self._report(str(lost))
        finally:
            self._commands = self._delivery = None
            await delivery.close()
