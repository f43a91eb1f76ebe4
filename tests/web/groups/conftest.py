"""Every test that takes the fixture `engine` runs once for each engine."""

import pytest

from tests.support.engines import for_each_engine

ENGINE_MODULES = ("test_consumer_groups",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, ENGINE_MODULES, "a quick part of the tests of groups runs over kwire")
