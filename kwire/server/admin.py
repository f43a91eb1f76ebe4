"""Builds the services of the routes under /admin."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kwire.broker.backup.snapshots import Snapshots
from kwire.descriptors import Descriptors
from kwire.handlers.shared.context import Services
from kwire.metastore import EmbeddedMetaStore
from kwire.server.kafka.listener import KafkaListener
from kwire.web.services import AdminServices, PortServices, ServedListener
from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files

if TYPE_CHECKING:
    from kwire.access.tls import TlsListener


def admin_services(
    port: PortServices,
    services: Services,
    store: LogDirectories,
    metastore: EmbeddedMetaStore,
    files: Files,
    descriptors: Descriptors,
    listeners: Sequence[KafkaListener],
    is_ready: Callable[[], bool],
    tls: "Sequence[TlsListener]",
) -> AdminServices:
    groups = services.groups
    call_later = asyncio.get_running_loop().call_later
    return AdminServices(
        port=port,
        cluster_id=services.node.cluster_id,
        topics=services.topics,
        store=store,
        snapshots=Snapshots(services.topics, store, metastore, files, services.clock, call_later),
        descriptors=descriptors,
        audit=services.audit,
        started_ms=services.clock.now_ms(),
        is_ready=is_ready,
        group_count=lambda: sum(1 for _ in groups.groups()) + sum(1 for _ in groups.consumer_groups()),
        listeners=lambda: [_served(one) for one in listeners],
        tls=tls,
    )


def _served(one: KafkaListener) -> ServedListener:
    advertised = one.advertised
    return ServedListener(
        one.listener.name,
        one.listener.host,
        one.port,
        advertised.host if advertised is not None else None,
        (advertised.port or one.port) if advertised is not None else None,
        one.listener.security_protocol,
    )
