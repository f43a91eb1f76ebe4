"""Runs Kafka's command-line tools for measurements. The same Java client measures both servers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmark.processes import Child, ChildFailed, run
from benchmark.servers import RunningServer

TOOL_TIMEOUT_SECONDS = 900
TOPIC_TIMEOUT_SECONDS = 90
HEAP = "-Xmx512M"  # The setting in Kafka's start scripts for these tools.

PRODUCED = re.compile(
    r"^(?P<records>\d+) records sent, (?P<records_per_s>[\d.]+) records/sec \((?P<mb_per_s>[\d.]+) MB/sec\), "
    r"(?P<avg_ms>[\d.]+) ms avg latency, (?P<max_ms>[\d.]+) ms max latency, (?P<p50_ms>\d+) ms 50th, "
    r"(?P<p95_ms>\d+) ms 95th, (?P<p99_ms>\d+) ms 99th, (?P<p999_ms>\d+) ms 99.9th",
    re.MULTILINE,
)
END_TO_END = re.compile(
    r"^Avg latency: (?P<avg_ms>[\d.]+) ms\s+"
    r"Percentiles: 50th = (?P<p50_ms>\d+), 99th = (?P<p99_ms>\d+), 99.9th = (?P<p999_ms>\d+)",
    re.MULTILINE,
)
CONSUMED_COLUMNS = {
    "data.consumed.in.nMsg": "records",
    "MB.sec": "mb_per_s",
    "nMsg.sec": "records_per_s",
    "rebalance.time.ms": "rebalance_ms",
    "fetch.MB.sec": "fetch_mb_per_s",
}


@dataclass(frozen=True)
class Tools:
    """The tools. `command_config` is the properties file with the security settings of their clients."""

    libs: Path
    command_config: Path | None = None

    def create_topic(
        self, server: RunningServer, topic: str, partitions: int, configs: Mapping[str, object] | None = None
    ) -> None:
        options = ["--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1"]
        for name, value in (configs or {}).items():
            options += ["--config", f"{name}={value}"]
        self._topics(server, options)

    def delete_topics(self, server: RunningServer, pattern: str) -> None:
        self._topics(server, ["--delete", "--if-exists", "--topic", pattern])

    def produce(
        self, server: RunningServer, topic: str, records: int, payload: int | Path, properties: dict[str, object]
    ) -> dict[str, float]:
        """Run the producer tool. `payload` is the size of a record, or a file with one value per line."""
        tool = "ProducerPerformance"
        argv = self._argv(tool, server, topic, records)
        argv += ["--record-size", str(payload)] if isinstance(payload, int) else ["--payload-file", str(payload)]
        argv += ["--throughput", "-1", "--command-property", "acks=all"]
        argv += [f"{name}={value}" for name, value in properties.items()]
        return parse_produced(run(tool, argv, TOOL_TIMEOUT_SECONDS), records)

    def consumer(self, server: RunningServer, topic: str, records: int) -> Child:
        """Start the consumer tool. `parse_consumed` parses its output."""
        tool = "ConsumerPerformance"
        return Child(tool, self._argv(tool, server, topic, records))

    def consume(self, server: RunningServer, topic: str, records: int) -> dict[str, float]:
        with self.consumer(server, topic, records) as consumer:
            return parse_consumed(consumer.finish(TOOL_TIMEOUT_SECONDS), records)

    def end_to_end(self, server: RunningServer, topic: str, records: int, record_size: int) -> dict[str, float]:
        tool = "EndToEndLatency"
        argv = self._argv(tool, server, topic, records)
        argv += ["--producer-acks", "all", "--record-size", str(record_size)]
        return parse_end_to_end(run(tool, argv, TOOL_TIMEOUT_SECONDS))

    def _topics(self, server: RunningServer, options: list[str]) -> None:
        tool = "TopicCommand"
        run(tool, [*self._java(tool), *self._client(server), *options], TOPIC_TIMEOUT_SECONDS)

    def _argv(self, tool: str, server: RunningServer, topic: str, records: int) -> list[str]:
        return [*self._java(tool), *self._client(server), "--topic", topic, "--num-records", str(records)]

    def _client(self, server: RunningServer) -> list[str]:
        config = [] if self.command_config is None else ["--command-config", str(self.command_config)]
        return ["--bootstrap-server", server.bootstrap, *config]

    def _java(self, tool: str) -> list[str]:
        return ["java", HEAP, "-cp", f"{self.libs}/*", f"org.apache.kafka.tools.{tool}"]


def parse_produced(output: str, records: int) -> dict[str, float]:
    figures = _named_figures("ProducerPerformance", PRODUCED, output)
    return _complete("ProducerPerformance", figures, records)


def parse_consumed(output: str, records: int) -> dict[str, float]:
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.count(",") > 8]
    if len(rows) != 2:
        raise ChildFailed(f"ConsumerPerformance printed no result:\n{output}")
    found = dict(zip(*rows, strict=True))
    figures = {name: float(found[column]) for column, name in CONSUMED_COLUMNS.items()}
    return _complete("ConsumerPerformance", figures, records)


def parse_end_to_end(output: str) -> dict[str, float]:
    return _named_figures("EndToEndLatency", END_TO_END, output)


def _named_figures(tool: str, pattern: re.Pattern[str], output: str) -> dict[str, float]:
    matches = list(pattern.finditer(output))
    if not matches:
        raise ChildFailed(f"{tool} printed no result:\n{output}")
    return {name: float(value) for name, value in matches[-1].groupdict().items()}


def _complete(tool: str, figures: dict[str, float], records: int) -> dict[str, float]:
    """Check the record count. After a timeout or a refused record, these tools still exit with code 0."""
    if figures["records"] < records:
        raise ChildFailed(f"{tool}: only {figures['records']:.0f} of {records} records")
    return figures
