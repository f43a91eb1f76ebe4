"""docs/kafka-over-http.md: its examples are run, and its table has every request."""

import asyncio
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from kwire.web.kafka_requests.listed import EXCLUDED, REQUESTS
from tests.support.http import http_node
from tests.support.kafka_request_cases import NEW_TOPIC
from tests.support.node import in_uvloop

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kafka-over-http.md").read_text()
EXAMPLE = re.compile(r"^\$ (curl .*)\n(.*)$", re.MULTILINE)
# Times of records differ between two runs.
VOLATILE = re.compile(r'("\w*timestamp_ms":)\d+')


def test_the_table_has_every_request() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d-]+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(one.name, str(one.api.versions), one.summary) for one in REQUESTS]
    for name, reason in EXCLUDED.items():
        assert re.search(rf"^\| .*`{name}`.* \| {re.escape(reason)} \|$", PAGE, re.MULTILINE), name


@in_uvloop
async def test_the_examples_are_true(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        topic = {**NEW_TOPIC, "name": "orders", "num_partitions": 3}
        await http.post("/kafka/CreateTopics", {"topics": [topic]})
        await http.post("/kafka/FindCoordinator", {"coordinator_keys": ["billing"]})
        async with asyncio.timeout(20):
            while (await http.post("/kafka/ListGroups", {})).json["error_code"]:
                await asyncio.sleep(0.01)
        examples = EXAMPLE.findall(PAGE)
        assert len(examples) >= 10
        for command, shown in examples:
            _, _, address, *rest = shlex.split(command)
            url = urlsplit(f"http://{address}")
            path = url.path + (f"?{url.query}" if url.query else "")
            if rest:
                assert rest[:3] == ["-H", "Content-Type: application/json", "-d"], command
                answer = await http.ask("POST", path, rest[3].encode(), Content_Type="application/json")
            else:
                answer = await http.get(path)
            assert VOLATILE.sub(r"\1", answer.body.decode()) == VOLATILE.sub(r"\1", shown), command
