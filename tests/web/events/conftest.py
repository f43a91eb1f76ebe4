"""Every test that takes the fixture `engine` runs once for each engine."""

import pytest

from tests.support.engines import for_each_engine

# The modules that use most of what the engines do not share.
ENGINE_MODULES = ("test_publish", "test_subscribe")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, ENGINE_MODULES, "reading and schemas are the same code")
