"""POST /events: one or many events per request, for one or three topics, with and without a schema.

The event store always syncs its journal before it answers, independent of `kwire.log.sync`. So only some of the cases
are also measured with the other value of this setting.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmark.events.options import PUBLISH
from benchmark.events.stage import SYNC, WARM_UP_SHARE, EventWork, Stage, kwire, load
from benchmark.events.topics import ANYTHING, ORDER, make_event_topics
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KWIRE

GROUP, OS = "group", "os"
SPREAD_TOPICS = 3


@dataclass(frozen=True)
class Way:
    """A measured case: events per request (`batch`), and connections with one request in flight each."""

    batch: int
    connections: int
    topics: int = 1
    has_schema: bool = True
    syncs: tuple[str, ...] = (GROUP,)

    @property
    def name(self) -> str:
        spread = f", {self.topics} topics" if self.topics > 1 else ""
        return f"{PUBLISH} {self.batch} x{self.connections}{spread}" + ("" if self.has_schema else ", no schema")

    def named(self, sync: str) -> str:
        return self.name if sync == GROUP else f"{self.name}, log.sync={sync}"


BATCH_CONNECTIONS = 4
BOTH = (GROUP, OS)
WAYS = (
    Way(1, 1, syncs=BOTH),
    Way(1, 8, syncs=BOTH),
    Way(1, 8, has_schema=False),
    Way(100, BATCH_CONNECTIONS, syncs=BOTH),
    Way(100, BATCH_CONNECTIONS, has_schema=False),
    Way(100, BATCH_CONNECTIONS, topics=SPREAD_TOPICS),
    Way(1000, 1),
    Way(1000, BATCH_CONNECTIONS, syncs=BOTH),
    Way(1000, BATCH_CONNECTIONS, has_schema=False),
    Way(1000, BATCH_CONNECTIONS, topics=SPREAD_TOPICS),
)


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    for sync in BOTH:
        ways = [way for way in WAYS if sync in way.syncs]
        with kwire(stage, {SYNC: sync}) as server:
            for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
                for index, way in enumerate(ways):
                    topics = [f"p-{number}-{index}-{topic}" for topic in range(way.topics)]
                    make_event_topics(server, topics, ORDER if way.has_schema else ANYTHING)
                    publish = partial(
                        load,
                        stage,
                        server,
                        "publish",
                        topics=",".join(topics),
                        batch=way.batch,
                        connections=way.connections,
                        seconds=stage.options.sizes.seconds * share,
                    )
                    yield observe(server, number, way.named(sync), publish)


WORK = EventWork(PUBLISH, 75, run, servers=(KWIRE,))
