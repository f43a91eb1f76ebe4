"""What a topic's configuration says about its logs; replaced as a whole when it changes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from storage.format import CREATE_TIME

# Runs a function off the caller's thread; the function catches its own errors.
Background = Callable[[Callable[[], None]], None]


class LogSettings(Struct, frozen=True):
    """Kafka's names and defaults, in bytes and milliseconds."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    timestamp_type: int = CREATE_TIME
