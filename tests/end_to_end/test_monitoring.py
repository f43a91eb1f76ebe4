"""The dashboard and the alert rules of docs/monitoring, with a real Prometheus and a server under load.

Every expression of the dashboard has a value. Alerts fire when their condition is made on the server. Conditions that
take hours, such as a disk that fills slowly, are in tests/test_alert_rules.py.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.monitored_server import BALLAST_BYTES, DISK_BYTES, MonitoredServer, load_of, pipeline_job
from tests.support.node import in_loop
from tests.support.prometheus import Prometheus, alert_names, dashboard_expressions
from tests.support.small_disk import SmallDisk, can_mount_small_disk

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
AFTER_DAMAGE = {
    "KwireDamagedRecords",
    "KwireHttpErrors",
    "KwireLogsRefuseRecords",
    "KwirePartitionsOffline",
    "KwireRestarted",
}


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
        server.ready()
        yield server
    finally:
        server.kill()


@in_loop
async def test_the_dashboard_has_values_and_alerts_fire(
    tmp_path: Path, disk: SmallDisk | None, server: MonitoredServer
) -> None:
    async with pipeline_job() as job:
        targets = {"kwire": server.monitoring, "kwire-pipeline": job}
        async with Prometheus(tmp_path / "prometheus", targets) as prometheus:
            await _check(server, prometheus, disk)


async def _check(server: MonitoredServer, prometheus: Prometheus, disk: SmallDisk | None) -> None:
    expressions = dashboard_expressions()
    fired: set[str] = set()
    # Rises are seen only after the first scrape.
    await prometheus.until_values(['up{job="kwire"} == 1'], WAIT_S)
    async with load_of(server) as load:
        await load.fail_logins(15)
        await load.be_denied(60)
        await load.open_too_many_connections()
        await prometheus.until_values(expressions, WAIT_S)
        await asyncio.to_thread(server.stall, 8)
        expected = UNDER_LOAD
        if disk is not None:
            disk.put_ballast(BALLAST_BYTES)
            expected = UNDER_LOAD | {"KwireDiskAlmostFull"}
        await prometheus.until_firing(expected, WAIT_S)
        fired |= expected
        await load.stop()
        server.kill()
        server.damage_files()
        server.restart()
        failing = asyncio.create_task(load.publish_to_a_read_only_log())
        await prometheus.until_firing(AFTER_DAMAGE, WAIT_S)
        failing.cancel()
        fired |= AFTER_DAMAGE
    server.kill()
    await prometheus.until_firing({"KwireDown"}, WAIT_S)
    fired.add("KwireDown")
    assert fired <= set(alert_names())
    print(f"{len(expressions)} expressions of the dashboard have values")
    print(f"{len(fired)} of {len(alert_names())} alerts fire on a server")
