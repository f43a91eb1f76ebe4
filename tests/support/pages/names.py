"""What each example name of the docs stands for: a room, a topic of the event store, or a plain topic."""

import re
from collections import defaultdict
from collections.abc import Iterable

from tests.support.pages.blocks import Block

_NAME = r"(?P<name>[A-Za-z][\w.:-]*)"
# Commands and calls that only one kind of topic allows. Kafka clients read and write all kinds.
_USES = {
    "room": (
        rf"/rooms/{_NAME}",
        rf"kwire room (?:create|describe|delete|publish|history|tail) {_NAME}",
        rf'stream\.(?:publish|subscribe)\("{_NAME}"',
    ),
    "event store": (
        rf"kwire (?:event (?:publish|list|tail)|schema (?:register|check|delete)) {_NAME}",
        rf'"topic": ?"{_NAME}", ?"type"',
        rf'"name": ?"{_NAME}", ?"schemas"',
        rf"/(?:subscribe/streams|topics)/{_NAME}(?:/events|\?from)",
        rf'(?:store|events)\.(?:publish|create_topic|last)\("{_NAME}"',
    ),
    "topic": (
        rf"kwire topic (?:create|add-partitions) {_NAME}",
        rf"/topics/{_NAME}(?:/publish|/partitions|/stats)",
        rf"/topics/{_NAME} -H 'Content-Type: application/json' -d '{{\s*\"num_partitions",
        rf"kafka-topics .*--create --topic {_NAME}",
        rf'kwire_server\.create_topic\("{_NAME}"',
    ),
}


def kinds_of_names(blocks: Iterable[Block]) -> dict[str, dict[str, set[str]]]:
    """Name to kind to the places that use it so."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for block in blocks:
        for kind, patterns in _USES.items():
            for pattern in patterns:
                for match in re.finditer(pattern, block.content):
                    found[match["name"]][kind].add(block.place)
    return found
