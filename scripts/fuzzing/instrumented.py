"""Loads the parsers so that atheris sees which of their branches a case takes, the generated ones too."""

import importlib
from typing import Any


def load() -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["kwire.wire", "storage", "fuzzing.wire_target"]):
        import fuzzing.wire_target  # noqa: F401
        import kwire.wire.codec

    writers: Any = kwire.wire.codec._Writer
    build = writers.build

    def build_seen(writer: Any, head: str, name: str) -> Any:
        # A generated function is no import, so it is instrumented when it is made. That takes some 50 ms, and the
        # newest version of a message has nearly all branches of the others.
        made = build(writer, head, name)
        is_newest = name == "decode" and writer.version == writer.message.versions.last
        return atheris.instrument_func(made) if is_newest else made

    writers.build = build_seen
