"""Every test that takes the fixture `rooms` runs once for each engine of rooms."""

import pytest

from tests.support.remote_worlds import apache_kafka as apache_kafka
from tests.support.room_engines import EMBEDDED, OVER_APACHE_PARAM, OVER_KWIRE
from tests.support.room_engines import rooms as rooms
from tests.support.room_engines import upstream_kwire as upstream_kwire

# The modules that test what the engines do not share. The others are about connections and the bodies of requests.
ENGINE_MODULES = ("test_rooms", "test_lines", "test_subscribe", "test_subscribers", "test_socket_session")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_chosen = any("rooms" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "rooms" in metafunc.fixturenames and not is_chosen:
        is_quick = metafunc.module.__name__.rpartition(".")[2] in ENGINE_MODULES
        marks = [] if is_quick else [pytest.mark.full("connections and bodies are the same with both engines")]
        over_kwire = pytest.param(OVER_KWIRE, marks=marks)
        metafunc.parametrize("rooms", [EMBEDDED, over_kwire, OVER_APACHE_PARAM], indirect=True)
