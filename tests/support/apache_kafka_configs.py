"""Broker settings of a real Apache Kafka, as facts to compare with."""

from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("apache_kafka_broker_configs.tsv")
NO_VALUE = "null"


class KafkaSetting(NamedTuple):
    name: str
    kind: str
    default: str
    is_sensitive: bool
    mode: str


def broker_settings() -> dict[str, KafkaSetting]:
    rows = (line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#"))
    return {name: KafkaSetting(name, kind, default, text == "true", mode) for name, kind, default, text, mode in rows}
