"""GET /metrics of a node, read the way Prometheus reads it."""

import aiohttp
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kwire.node import Node
from tests.server.frames import HOST


class Scrape:
    """One answer, by the names of its series."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.families, f"{family.name} is declared twice"
            self.families[family.name] = family

    def value(self, series: str, **labels: str) -> float:
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == series and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{series} {labels}: {found}"
        return found[0]

    def labels(self, series: str, label: str) -> set[str]:
        return {
            sample.labels[label]
            for family in self.families.values()
            for sample in family.samples
            if sample.name == series
        }


async def scrape(node: Node) -> Scrape:
    assert node.http is not None
    async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{node.http.port}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return Scrape(await answer.text())
