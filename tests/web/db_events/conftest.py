"""Which tests of this folder run with which engine."""

import pytest

from tests.support.engines import for_each_engine


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for_each_engine(metafunc, (), "limits and connections are those of the same code")
