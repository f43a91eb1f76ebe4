"""Every test that takes the fixture `engine` runs once for each engine."""

import pytest

from tests.support.engines import for_each_engine

# The modules that test what the engines do not share.
ENGINE_MODULES = ("test_publish", "test_read", "test_subscribe", "test_topics")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, ENGINE_MODULES, "the same with both engines")
