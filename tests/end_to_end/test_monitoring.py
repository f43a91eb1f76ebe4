"""The dashboard and the alert rules of docs/monitoring, with a real Prometheus and a server under load.

Every expression of the dashboard has a value. Every alert fires when its condition is made on a server. The rules are
those that users get, but without the time for which a condition has to hold; tests/test_monitoring_docs.py tests these
times with promtool. There are two servers: one is under load, and its files are damaged later; the machine of the other
is in trouble.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.monitored_server import BALLAST_BYTES, DISK_BYTES, MonitoredServer, load_of, pipeline_job
from tests.support.node import in_loop
from tests.support.prometheus import Prometheus, alert_names, dashboard_expressions
from tests.support.small_disk import SmallDisk, can_mount_small_disk
from tests.support.strained_server import StrainedServer, strained

pytestmark = pytest.mark.needs_prometheus

WAIT_S = 30.0
UNDER_LOAD = {
    "KwireClientThrottled",
    "KwireConnectionsRefused",
    "KwireCertificateExpires",
    "KwireDeadLetters",
    "KwireEventLoopStalls",
    "KwireFailedLogins",
    "KwireGroupBehind",
    "KwireGroupWithoutMembers",
    "KwireOperationsDenied",
    "KwirePipelineBehind",
    "KwireWebhookDisabled",
    "KwireWebhooksFail",
}
ON_A_SMALL_DISK = {"KwireDiskAlmostFull", "KwireDiskFullSoon"}
AFTER_DAMAGE = {
    "KwireAuditEntriesLost",
    "KwireDamagedRecords",
    "KwireHttpErrors",
    "KwireLogsRefuseRecords",
    "KwirePartitionsOffline",
    "KwireRestarted",
}
UNDER_STRAIN = {
    "KwireEventFilesBehind",
    "KwireFileDescriptorsLow",
    "KwireMaintenanceFails",
    "KwireOldTransaction",
    "KwireSlowProduce",
    "KwireSlowSyncs",
    "KwireSubscribersTooSlow",
}
# Alerts whose condition cannot be made on a real server. None, as long as a small disk can be mounted.
NOT_ON_A_SERVER: set[str] = set()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk | None]:
    if not can_mount_small_disk():
        yield None
        return
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def server(tmp_path: Path, disk: SmallDisk | None) -> Iterator[MonitoredServer]:
    server = MonitoredServer(tmp_path / "kwire", disk)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def other_server(tmp_path: Path) -> Iterator[StrainedServer]:
    server = StrainedServer(tmp_path / "strained")
    try:
        server.begin()
        yield server
    finally:
        server.kill()


@in_loop
async def test_the_dashboard_has_values_and_alerts_fire(
    tmp_path: Path, disk: SmallDisk | None, server: MonitoredServer, other_server: StrainedServer
) -> None:
    server.ready()
    expressions, not_made = dashboard_expressions(), NOT_ON_A_SERVER | (ON_A_SMALL_DISK if disk is None else set())
    async with pipeline_job() as job:
        targets = {"kwire": [server.monitoring, other_server.metrics_address], "kwire-pipeline": [job]}
        async with Prometheus(tmp_path / "prometheus", targets) as prometheus:
            # Rises are seen only after the first scrape.
            await prometheus.until_values(['count(up{job="kwire"} == 1) == 2'], WAIT_S)
            async with asyncio.TaskGroup() as tasks:
                load = tasks.create_task(_load_and_damage(server, prometheus, disk, expressions))
                strain = tasks.create_task(_strain(other_server, prometheus))
            fired = load.result() | strain.result()
    print(f"{len(expressions)} expressions of the dashboard have values")
    print(f"{len(fired)} of {len(alert_names())} alerts fire on a server")
    assert set(alert_names()) - fired == not_made


async def _strain(server: StrainedServer, prometheus: Prometheus) -> set[str]:
    """Make the conditions of a machine in trouble. Returns the alerts that have fired."""
    async with strained(server):
        await prometheus.until_firing(UNDER_STRAIN, WAIT_S)
    return UNDER_STRAIN


async def _load_and_damage(
    server: MonitoredServer, prometheus: Prometheus, disk: SmallDisk | None, expressions: Collection[str]
) -> set[str]:
    """Make the conditions of load, then of damaged files, and of a server that has ended."""
    under_load = UNDER_LOAD | (ON_A_SMALL_DISK if disk is not None else set())
    async with load_of(server) as load:
        await load.fail_logins(15)
        await load.be_denied(60)
        await load.open_too_many_connections()
        await prometheus.until_values(expressions, WAIT_S)
        await asyncio.to_thread(server.stall, 8)
        if disk is not None:
            disk.put_ballast(BALLAST_BYTES)
        await prometheus.until_firing(under_load, WAIT_S)
        await load.stop()
        server.kill()
        server.damage_files()
        await asyncio.to_thread(server.restart)
        async with _running(load.publish_to_a_read_only_log(), load.change_acls()):
            await prometheus.until_firing(AFTER_DAMAGE, WAIT_S)
    server.kill()
    await prometheus.until_firing({"KwireDown"}, WAIT_S)
    return under_load | AFTER_DAMAGE | {"KwireDown"}


@asynccontextmanager
async def _running(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless work inside. Its errors are raised at the end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
