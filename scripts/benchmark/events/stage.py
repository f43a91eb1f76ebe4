"""Starts the servers of this family, and runs the load program on them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmark import family, machine
from benchmark.events.options import PRODUCE, Options
from benchmark.family import Beside
from benchmark.go_programs import build_load, run_load
from benchmark.servers import KAFKA, KWIRE, ApacheKafka, RunningServer, fetch_apache_kafka
from benchmark.tools import Tools
from benchmark.works import Outcome

LOAD_SOURCES = Path(__file__).parent / "load"
LOAD_SECONDS_MAX = 300.0
# Without this setting, the server refuses webhooks whose receiver is on this machine.
SETTINGS: Mapping[str, object] = {"kwire.webhooks.allow.private": "true"}
SYNC = "kwire.log.sync"
WARM_UP_SHARE = 0.25


@dataclass(frozen=True)
class EventTools:
    """The programs that the works use. `kafka` is None if no selected work needs Kafka's tools."""

    load: Path
    kafka: Tools | None

    def facts(self) -> dict[str, object]:
        if self.kafka is None:
            return {"beside": "no other server", "runtime": machine.output_of(["go", "version"])}
        return machine.kafka_facts(self.kafka.libs)


Stage = family.Stage[Options, EventTools]
EventWork = family.StagedWork[Options, EventTools]


def beside(given: Options) -> Beside[EventTools]:
    def tools() -> EventTools:
        return EventTools(
            build_load("events", LOAD_SOURCES), Tools(fetch_apache_kafka()) if PRODUCE in given.works else None
        )

    needed = "the load program and Kafka's jars (the first run builds and fetches them)"
    return Beside(KAFKA, ("Apache Kafka", "Kafka"), ApacheKafka, needed, tools, EventTools.facts)


@contextmanager
def kwire(stage: Stage, settings: Mapping[str, object] | None = None) -> Iterator[RunningServer]:
    with stage.server(KWIRE, {**SETTINGS, **(settings or {})}) as server:
        yield server


def load(stage: Stage, server: RunningServer, work: str, **options: object) -> Outcome:
    """Run the load program against a server."""
    return run_load(stage.tools.load, work, LOAD_SECONDS_MAX, port=server.http_port, **options)
