"""Groups of a bridge: those of the cluster, with HTTP members, reports and metrics."""

import asyncio
import logging
from typing import Final

from kwire.access.audit.entries import Audit
from kwire.clock import Clock
from kwire.config import Config
from kwire.coordinator.group.definitions import GroupDefinitions
from kwire.coordinator.web_groups.values import defaults_of
from kwire.errors import KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.metastore import MetaStore
from kwire.streams.remote.directory import RemoteTopics
from kwire.streams.remote_groups.lag import RemoteLags
from kwire.streams.remote_groups.reports import RemoteGroupReports
from kwire.streams.remote_groups.web_groups import RemoteWebGroups
from kwire.streams.subscriptions import Subscriptions
from kwire.web.bridge.services import GroupSeries
from kwire.web.groups.metrics import GROUP_SERIES_MAX, LAG_SERIES_MAX
from kwire.web.services import GroupServices, PortServices

log = logging.getLogger("kwire.bridge")

# How long a request for metrics waits for the lag of groups.
SERIES_SECONDS: Final = 5.0


class BridgeGroups:
    """The caller closes the groups before the topics and the cluster."""

    def __init__(
        self, config: Config, cluster: Cluster, metastore: MetaStore, topics: RemoteTopics, audit: Audit, clock: Clock
    ) -> None:
        self._definitions = GroupDefinitions(metastore)
        self._members = RemoteWebGroups(cluster, self._definitions, topics, defaults_of(config.rest_groups), audit)
        self._reports = RemoteGroupReports(cluster, RemoteLags(cluster, topics, clock))
        # How often the lag of groups was not known within SERIES_SECONDS.
        self.failures = 0

    @property
    def member_count(self) -> int:
        """The number of HTTP members of this process."""
        return self._members.member_count

    def is_any_defined_for(self, topic: str) -> bool:
        """Return whether a group that is defined on this bridge reads a topic, even without members or offsets."""
        return self._definitions.has_topic(topic)

    async def close(self) -> None:
        await self._members.close()

    def services(self, port: PortServices, subscriptions: Subscriptions) -> GroupServices:
        return GroupServices(port, self._reports, self._members, subscriptions)

    async def series(self) -> GroupSeries:
        """Measure the groups that are defined on this bridge: others have the metrics of the cluster."""
        ids = [one.group_id for one in self._definitions.page("", GROUP_SERIES_MAX)]
        if not ids:
            return GroupSeries((), 0, 0)
        try:
            async with asyncio.timeout(SERIES_SECONDS):
                reports = await self._reports.report(await self._reports.named(ids), LAG_SERIES_MAX)
        except (KafkaError, TimeoutError) as error:
            self.failures += 1
            log.info("the lag of %d groups is not known: %s", len(ids), error or "the cluster does not answer")
            return GroupSeries((), self._definitions.count, 0)
        return GroupSeries(reports, self._definitions.count - len(ids), sum(one.left_out_count for one in reports))
