"""Measures the time and memory of cases, and ends the run if a case is too slow or the process grows too much."""

import resource
import time
from pathlib import Path

CASE_SECONDS_MAX = 1.0
GROWTH_BYTES_MAX = 64 * 1024 * 1024
# Memory is measured, and progress may be printed, each time after this many cases.
LOOK_CASES = 5_000
TELL_SECONDS = 30.0

_PAGE_BYTES = resource.getpagesize()


class LimitPassed(AssertionError):
    """A case took too long, or the process has grown too much."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Measures:
    """Counts cases, and raises LimitPassed if a limit is exceeded. Create it after each parser has run once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.cases = 0
        self.slowest_s = 0.0
        self.slowest = b""
        self._base_bytes = resident_bytes()
        self._base_peak_bytes = peak_bytes()
        self._most_bytes = self._base_bytes
        self._began = self._told = time.monotonic()
        # The limit applies to CPU time, because a parser is not slow only because the process did not get a CPU.
        self._clock = time.thread_time

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def growth_bytes(self) -> int:
        peak = peak_bytes()
        # A peak that was reached before the measurement is not caused by the cases.
        most = peak if peak > self._base_peak_bytes else self._most_bytes
        return max(0, most - self._base_bytes)

    def begin(self) -> float:
        return self._clock()

    def end(self, began: float, data: bytes) -> None:
        took = self._clock() - began
        self.cases += 1
        if took > self.slowest_s:
            self.slowest_s, self.slowest = took, data
        if took > CASE_SECONDS_MAX:
            raise LimitPassed(f"a case took {took:.3f} s")
        if self.cases % LOOK_CASES == 0:
            self._most_bytes = max(self._most_bytes, resident_bytes())
            if self.growth_bytes > GROWTH_BYTES_MAX:
                raise LimitPassed(f"the process has grown by {self.growth_bytes >> 20} MiB")
            if time.monotonic() - self._told > TELL_SECONDS:
                self._told = time.monotonic()
                print(self.text(), flush=True)

    def text(self) -> str:
        rate = self.cases / max(self.seconds, 1e-9)
        return (
            f"{self._name}: {self.cases:,} cases in {self.seconds:.0f} s ({rate:,.0f}/s), slowest "
            f"{self.slowest_s * 1000:.1f} ms, memory growth {self.growth_bytes / (1 << 20):.1f} MiB"
        )
