"""Metrics of the process, its event loop and its file descriptors; a part of GET /metrics."""

import os
import platform
import resource
from collections.abc import Iterator
from functools import cache

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import kwire
from kwire.descriptors import Descriptors
from kwire.metrics import LoopMetrics

# The position of the start time in /proc/self/stat, after the name of the program.
_START_FIELD = 19


def build_families() -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "kwire_build_info", "Always 1. The labels are the versions of kwire and Python.", labels=["version", "python"]
    )
    info.add_metric([kwire.__version__, platform.python_version()], 1)
    yield info


def loop_families(metrics: LoopMetrics) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kwire_loop_stall_seconds_max",
        "The longest time the event loop was blocked by its own work since the start.",
        value=metrics.stall_seconds_max,
    )
    yield CounterMetricFamily(
        "kwire_loop_stalls", "Times that the event loop was blocked for more than 50 ms.", value=metrics.stalls
    )
    yield GaugeMetricFamily(
        "kwire_loop_run_queue_wait_seconds_max",
        "The longest time the event loop waited for a processor between two probes.",
        value=metrics.run_queue_wait_seconds_max,
    )
    yield CounterMetricFamily(
        "kwire_loop_run_queue_wait_seconds",
        "Time that the event loop waited for a processor.",
        value=metrics.run_queue_wait_seconds,
    )


def process_families(descriptors: Descriptors) -> Iterator[Metric]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield CounterMetricFamily(
        "process_cpu_seconds", "Processor time, user and system.", value=usage.ru_utime + usage.ru_stime
    )
    yield GaugeMetricFamily("process_open_fds", "Open file descriptors.", value=_open_descriptors(descriptors))
    yield from _descriptor_families(descriptors)
    try:
        start_seconds = _start_seconds()
        with open("/proc/self/status") as status:
            memory = {one.split(":")[0]: one.split()[1] for one in status if one.startswith(("VmRSS", "RssAnon"))}
    except OSError:  # no file descriptor is free to read the file
        return
    yield GaugeMetricFamily(
        "process_start_time_seconds", "Start of the process, in seconds since 1970.", value=start_seconds
    )
    yield GaugeMetricFamily(
        "process_resident_memory_bytes",
        "Memory in use, mapped log pages included.",
        value=int(memory["VmRSS"]) * 1024,
    )
    yield GaugeMetricFamily(
        "kwire_process_anonymous_memory_bytes",
        "Memory in use without mapped files.",
        value=int(memory["RssAnon"]) * 1024,
    )


@cache
def _start_seconds() -> float:
    """Return the time at which this process started, in seconds since 1970. Raises OSError."""
    with open("/proc/self/stat") as stat, open("/proc/stat") as system:
        # The name of the program is in parentheses and may contain spaces.
        ticks = int(stat.read().rpartition(")")[2].split()[_START_FIELD])
        boot_seconds = next(int(line.split()[1]) for line in system if line.startswith("btime "))
    return boot_seconds + ticks / os.sysconf("SC_CLK_TCK")


def _open_descriptors(descriptors: Descriptors) -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # no file descriptor is free to read the directory
        return descriptors.limit


def _descriptor_families(descriptors: Descriptors) -> Iterator[Metric]:
    yield GaugeMetricFamily("process_max_fds", "File descriptors that may be open.", value=descriptors.limit)
    yield GaugeMetricFamily(
        "kwire_process_reserved_fds",
        "File descriptors reserved for the log; connections cannot use them.",
        value=descriptors.reserved_count,
    )
    refused = CounterMetricFamily(
        "kwire_server_descriptor_refusals",
        "Connections refused because the remaining descriptors are reserved for the log.",
        labels=["kind"],
    )
    for kind, count in descriptors.refused.items():
        refused.add_metric([kind], count)
    yield refused
