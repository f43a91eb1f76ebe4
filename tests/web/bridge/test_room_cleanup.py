"""The clean-up of a bridge keeps rooms that are used as topics, by groups of the bridge, or by webhooks."""

import pytest

from kwire.bridge.process import Bridge
from tests.support.clock import ManualClock
from tests.support.engines import OVER_KWIRE, Engine
from tests.support.http import Http
from tests.support.node import in_uvloop

SETTINGS = ("kwire.bridge.cleanup=true", "kwire.rooms.inactive.timeout.hours=2")
HOUR_MS = 3_600_000


@pytest.mark.parametrize("engine", [OVER_KWIRE], indirect=True)
@in_uvloop
async def test_rooms_in_use_are_kept(engine: Engine) -> None:
    async with engine.http(*SETTINGS) as http:
        bridge = http.server
        assert isinstance(bridge, Bridge)
        names = ["browsed", "grouped", "idle", "posted"]
        for name in names:
            assert (await http.put(f"/rooms/{name}", {"retention_mode": "infinite"})).status == 201
        assert (await http.post("/consumer-groups/billing", {"topic": "grouped"})).status == 201
        cleanup = bridge._cleanup
        await cleanup.round()
        clock = cleanup._clock = ManualClock(cleanup._clock.now_ms())
        clock.advance(3 * HOUR_MS)
        assert (await http.get("/topics/browsed")).status == 200
        assert (await posted(http, "posted")) == 200
        await cleanup.round()
        assert bridge._rooms.list().names == ["browsed", "grouped", "posted"]


async def posted(http: Http, name: str) -> int:
    """Produce a record with REST Proxy's API."""
    answer = await http.post(
        f"/topics/{name}",
        {"records": [{"value": 1}]},
        **{"Content-Type": "application/vnd.kafka.json.v2+json", "Accept": "application/vnd.kafka.v2+json"},
    )
    return answer.status
