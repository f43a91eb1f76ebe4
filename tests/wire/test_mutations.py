"""The oracles are good for something: a declaration that is wrong in one place makes them fail.

Each run breaks a sample of the declarations, a few for every sort of mistake; the sample is named by a seed, and
KWIRE_TEST_SEED repeats it. There are about six thousand mutants.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kwire.wire.errors import WireError
from kwire.wire.schema import message_of
from tests.end_to_end.seeds import announced_seed
from tests.support.effort import repetitions
from tests.support.message_oracle import MessageOracle
from tests.wire import kafka_python_oracle
from tests.wire.cases import MESSAGES
from tests.wire.java_oracle import check_with_java, java_knows
from tests.wire.kafka_python_oracle import check_with_kafka_python
from tests.wire.kafka_schemas import check_declaration
from tests.wire.mutants import SORTS, Mutant, mutants_of, unbroken
from tests.wire.strategies import corners

MUTANTS_OF_A_SORT = repetitions(quick=8, full=20)
UNBROKEN_COUNT = 20

needs_kafka = [pytest.mark.needs_java, pytest.mark.needs_mvn, pytest.mark.timeout(600)]


def sampled(sort: str, seed: int, knows: Callable[[type[Any], int], bool]) -> list[tuple[Mutant, int]]:
    """Mutants of one sort, each with a version in which it can be seen and which an oracle knows."""
    chance = Random(seed)
    candidates = [
        (mutant, seen)
        for cls in MESSAGES
        for mutant in mutants_of(cls)
        if mutant.sort == sort and (seen := [version for version in mutant.versions if knows(cls, version)])
    ]
    chosen = chance.sample(candidates, min(MUTANTS_OF_A_SORT, len(candidates)))
    return [(mutant, chance.choice(seen)) for mutant, seen in chosen]


def survivors(mutants: list[tuple[Mutant, int]], check: Callable[[Mutant, type[Any], int], None]) -> list[str]:
    """Those that a check did not mind. It may find a difference or be unable to read; else it is at fault itself."""
    alive = []
    for mutant, version in mutants:
        try:
            check(mutant, mutant.declare(), version)
        except (AssertionError, WireError):
            continue
        alive.append(f"{mutant.what}, in version {version}")
    return alive


@pytest.mark.parametrize("sort", SORTS)
def test_kafka_python_notices_a_wrong(sort: str) -> None:
    # Its encoders write any null and are told what is flexible, so bytes alone would not do: its schemas know both.
    def check(mutant: Mutant, cls: type[Any], version: int) -> None:
        check_declaration(cls, kafka_python_oracle.SCHEMAS[mutant.original.__name__], [version])
        check_with_kafka_python(cls, version, corners(cls, version))

    mutants = sampled(sort, announced_seed(), kafka_python_oracle.knows)
    assert mutants
    assert not survivors(mutants, check)


@pytest.mark.parametrize("sort", [pytest.param(sort, marks=needs_kafka) for sort in SORTS])
def test_kafkas_classes_notice_a_wrong(sort: str, message_oracle: MessageOracle) -> None:
    def check(_: Mutant, cls: type[Any], version: int) -> None:
        check_with_java(message_oracle, cls, version, corners(cls, version))

    mutants = sampled(sort, announced_seed(), java_knows)
    assert mutants
    assert not survivors(mutants, check)


@pytest.mark.needs_java
@pytest.mark.needs_mvn
@pytest.mark.timeout(600)
def test_a_declaration_made_anew_without_a_mistake_is_not_minded(message_oracle: MessageOracle) -> None:
    for original in Random(announced_seed()).sample(MESSAGES, UNBROKEN_COUNT):
        cls, version = unbroken(original), message_of(original).versions.last
        check_with_java(message_oracle, cls, version, corners(cls, version))
        if kafka_python_oracle.knows(original, version):
            check_with_kafka_python(cls, version, corners(cls, version))
