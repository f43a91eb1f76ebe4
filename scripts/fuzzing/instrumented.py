"""Instruments the parsers, including the generated ones, so that atheris sees which branches a case takes."""

import importlib
from typing import Any


def load() -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["kwire.wire", "storage", "fuzzing.wire_target"]):
        import fuzzing.wire_target  # noqa: F401
        import kwire.wire.codec.code_writer

    writers: Any = kwire.wire.codec.code_writer.CodeWriter
    build = writers.build

    def build_seen(writer: Any, head: str, name: str) -> Any:
        # A generated function is not imported, so it is instrumented when it is generated. This takes about 50 ms, so
        # only the newest version is instrumented, which has nearly all branches of the other versions.
        made = build(writer, head, name)
        is_newest = name == "decode" and writer.version == writer.message.versions.last
        return atheris.instrument_func(made) if is_newest else made

    writers.build = build_seen
