"""A second opinion: kafka-python carries many of Kafka's own message schemas, and encoders of its own.

Declarations are compared with those schemas field by field, and bytes are compared both ways, in every version that
both sides know. `LACKING` is what kafka-python does not know; a test prints it and keeps it true, so that a newer
kafka-python is noticed.
"""

from typing import Any

import pytest

from kwire.wire.apis import APIS
from kwire.wire.schema import Versions
from tests.wire.cases import CASES, MESSAGES, by_message, checking
from tests.wire.kafka_python_oracle import SCHEMAS, check_with_kafka_python, knows
from tests.wire.kafka_schemas import check_declaration
from tests.wire.strategies import corners, drawn

# API and the versions of it that kafka-python 3.0 has no schema for.
LACKING = {
    "ApiVersions": "5",
    "TxnOffsetCommit": "6",
    "CreateDelegationToken": "1-3",
    "RenewDelegationToken": "1-2",
    "ExpireDelegationToken": "1-2",
    "DescribeDelegationToken": "1-3",
    "DeleteGroups": "3",
    "UnregisterBroker": "0",
    "ConsumerGroupHeartbeat": "0-1",
    "ConsumerGroupDescribe": "0-1",
    "GetTelemetrySubscriptions": "0",
    "PushTelemetry": "0",
    "ShareGroupHeartbeat": "1",
    "ShareGroupDescribe": "1",
    "ShareFetch": "1-2",
    "ShareAcknowledge": "1-2",
    "AddRaftVoter": "0-1",
    "RemoveRaftVoter": "0",
    "InitializeShareGroupState": "0",
    "ReadShareGroupState": "0",
    "WriteShareGroupState": "0-1",
    "DeleteShareGroupState": "0",
    "ReadShareGroupStateSummary": "0-1",
    "StreamsGroupHeartbeat": "0-1",
    "StreamsGroupDescribe": "0-1",
    "DescribeShareGroupOffsets": "0-1",
    "AlterShareGroupOffsets": "0",
    "DeleteShareGroupOffsets": "0",
    "StreamsGroupTopologyDescriptionUpdate": "0",
    "UnregisterController": "0",
}


KNOWN = [case for case in CASES if knows(*case)]
COMPARED = [cls for cls in MESSAGES if cls.__name__ in SCHEMAS]


def test_what_kafka_python_lacks_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lacking = {}
    for api in APIS.values():
        sides = [[v for v in api.versions if not knows(cls, v)] for cls in (api.request, api.response)]
        assert sides[0] == sides[1]
        if sides[0]:
            lacking[api.name] = str(Versions(sides[0][0], sides[0][-1]))
    with capsys.disabled():
        print(f"\nkafka-python is asked in {len(KNOWN)} of {len(CASES)} messages and versions; it lacks: ", end="")
        print(", ".join(f"{name} {versions}" for name, versions in lacking.items()))
    assert lacking == LACKING


@pytest.mark.parametrize("cls", COMPARED, ids=[cls.__name__ for cls in COMPARED])
def test_a_declaration_says_what_kafkas_schema_says(cls: type[Any]) -> None:
    check_declaration(cls, SCHEMAS[cls.__name__], [version for known, version in KNOWN if known is cls])


@by_message(KNOWN)
def test_kafka_python_writes_and_reads_the_same_bytes(cls: type[Any], versions: list[int]) -> None:
    for version in versions:
        with checking(cls, version):
            check_with_kafka_python(cls, version, [*drawn(cls, version), *corners(cls, version)])
