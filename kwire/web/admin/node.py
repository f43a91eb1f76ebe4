"""GET /admin/node: the state of the node, for `kwire cluster` and `kwire doctor`."""

from typing import Annotated

import msgspec
from aiohttp import web

from kwire import __version__
from kwire.broker.topics.topics import Topics
from kwire.web.needs import DESCRIBE_CLUSTER
from kwire.web.requests.bodies import json_answer
from kwire.web.route import Route
from kwire.web.services import AdminServices
from storage.errors import StorageError

Milliseconds = Annotated[int, msgspec.Meta(description="In milliseconds since 1970.")]


class ShownListener(msgspec.Struct, kw_only=True):
    """A listener of the Kafka port. Clients are told to connect to the advertised address, if there is one."""

    name: str
    host: str
    port: int
    advertised_host: str | None
    advertised_port: int | None
    security_protocol: str


class ShownDirectory(msgspec.Struct, kw_only=True):
    """A data directory. If `error` is not null, the directory is offline."""

    path: str
    total_bytes: int | None
    free_bytes: int | None
    is_reserve_whole: Annotated[bool, msgspec.Meta(description="Whether the disk reserve is complete.")]
    error: str | None


class ShownCertificate(msgspec.Struct, kw_only=True):
    listener: str
    expires_ms: Milliseconds


class ShownDescriptors(msgspec.Struct, kw_only=True):
    """The limit on open files, and the number of open logs that it allows and that is configured."""

    limit: int
    open_logs_max: int
    open_logs_configured: int
    refused_connections: int


class ShownDamage(msgspec.Struct, kw_only=True):
    """Damage of the logs. Each list has at most 20 entries: partitions, and the reason where there is one."""

    quarantined_ranges: int
    quarantined: list[str]
    refusing_logs: list[str]
    offline_partitions: dict[str, str]


class ShownNode(msgspec.Struct, kw_only=True):
    cluster_id: str
    node_id: int
    version: str
    started_ms: Milliseconds
    time_ms: Annotated[int, msgspec.Meta(description="The clock of the server, in milliseconds since 1970.")]
    is_ready: bool
    topics: Annotated[int, msgspec.Meta(description="Without internal topics, as for `partitions`.")]
    partitions: int
    internal_topics: int
    groups: int
    open_logs: int
    listeners: list[ShownListener]
    directories: list[ShownDirectory]
    descriptors: ShownDescriptors
    certificates: list[ShownCertificate]
    damage: ShownDamage


# Each list of damaged partitions has at most this many entries.
DAMAGED_SHOWN_MAX = 20


async def show(services: AdminServices, request: web.Request) -> web.Response:
    topics = services.topics
    counts = topics.catalogue.counts()
    directories = await topics.lanes.survey.run(_directories, services)
    descriptors = services.descriptors
    return json_answer(
        ShownNode(
            cluster_id=services.cluster_id,
            node_id=services.port.config.node_id,
            version=__version__,
            started_ms=services.started_ms,
            time_ms=services.port.clock.now_ms(),
            is_ready=services.is_ready(),
            topics=counts.topics,
            partitions=counts.partitions,
            internal_topics=counts.internal_topics,
            groups=services.group_count(),
            open_logs=len(topics.open_partitions),
            listeners=[
                ShownListener(
                    name=one.name,
                    host=one.host,
                    port=one.port,
                    advertised_host=one.advertised_host,
                    advertised_port=one.advertised_port,
                    security_protocol=one.security_protocol,
                )
                for one in services.listeners()
            ],
            directories=directories,
            descriptors=ShownDescriptors(
                limit=descriptors.limit,
                open_logs_max=descriptors.open_logs_max,
                open_logs_configured=services.port.config.log.open_max,
                refused_connections=sum(descriptors.refused.values()),
            ),
            certificates=[
                ShownCertificate(listener=one.name, expires_ms=one.expires_at * 1000) for one in services.tls
            ],
            damage=_damage(topics),
        )
    )


def _directories(services: AdminServices) -> list[ShownDirectory]:
    """Measure the volumes of the data directories, in a thread."""
    store = services.store
    whole = {reserve.data_dir: reserve.is_whole for reserve in store.reserves}
    found = []
    for path in store.configured_dirs:
        offline = store.offline_dirs.get(path)
        error = None if offline is None else str(offline)
        total_bytes = free_bytes = None
        if error is None:
            try:
                total_bytes, free_bytes = store.space(path)
            except StorageError as failure:
                error = str(failure)
        found.append(
            ShownDirectory(
                path=path,
                total_bytes=total_bytes,
                free_bytes=free_bytes,
                is_reserve_whole=whole.get(path, False),
                error=error,
            )
        )
    return found


def _damage(topics: Topics) -> ShownDamage:
    """Find damaged logs. Only open logs are examined, because the server keeps damaged logs open."""
    quarantined, refusing, range_count = [], [], 0
    for partition in topics.open_partitions:
        if not partition.is_open:
            continue
        opened, name = partition.maintenance(), f"{partition.topic_name}-{partition.index}"
        if opened.quarantined:
            range_count += len(opened.quarantined)
            quarantined.append(name)
        if not opened.is_writable:
            refusing.append(name)
    offline = list(topics.offline_partitions.items())[:DAMAGED_SHOWN_MAX]
    return ShownDamage(
        quarantined_ranges=range_count,
        quarantined=quarantined[:DAMAGED_SHOWN_MAX],
        refusing_logs=refusing[:DAMAGED_SHOWN_MAX],
        offline_partitions={folder: str(error) for folder, error in offline},
    )


ROUTES: tuple[Route[AdminServices], ...] = (
    Route(
        "GET",
        "/admin/node",
        show,
        summary="The state of the node",
        description="Listeners, disks, limits, certificates and damage. `kwire doctor` explains what to do about them.",
        tag="admin",
        answers={200: ShownNode},
        needs=(DESCRIBE_CLUSTER,),
    ),
)
