"""Every test that takes the fixture `engine` runs once for each engine."""

import pytest

from tests.support.engines import for_each_engine

# The modules that test what the engines do not share. The others are about connections and the bodies of requests.
ENGINE_MODULES = ("test_rooms", "test_lines", "test_subscribe", "test_subscribers", "test_socket_session")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, ENGINE_MODULES, "connections and bodies are the same with both engines")
