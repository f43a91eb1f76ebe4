"""Measures compaction without a server: `storage.compaction.compaction.compact` on the closed segments of a folder.

It is a separate program (`python -m benchmark.log.compact_program --help`). It writes new segments to the folder, and
does not change the old ones.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from storage.compaction.compaction import CompactionJob, compact
from storage.log.producers import ProducerStates
from storage.segment.sealed_scan import SealedSegment

KEYS_BYTES_MAX = 128 * 1024 * 1024
INDEX_INTERVAL_BYTES = 4096
DELETE_RETENTION_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class CompactedAlone:
    dirty_bytes: int
    written_bytes: int
    keys: int
    seconds: float


def measure(directory: Path, end_offset: int, segment_bytes: int) -> CompactedAlone:
    """Compact the segments. `end_offset` is the offset after the last record in the folder."""
    paths = sorted(directory.glob("*.log"))
    bases = [int(path.stem) for path in paths]
    sizes = [path.stat().st_size for path in paths]
    job = CompactionJob(
        directory=str(directory),
        segments=tuple(map(SealedSegment, bases, [*bases[1:], end_offset], sizes)),
        clean_upto=0,
        uncleanable_offset=end_offset,
        producers=ProducerStates().encode(),
        now_ms=time.time_ns() // 1_000_000,
        delete_retention_ms=DELETE_RETENTION_MS,
        keys_bytes_max=KEYS_BYTES_MAX,
        segment_bytes=segment_bytes,
        index_interval_bytes=INDEX_INTERVAL_BYTES,
    )
    started = time.perf_counter()
    done = compact(job)
    return CompactedAlone(sum(sizes), done.written_bytes, done.key_count, time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.log.compact_program", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--end-offset", type=int, required=True)
    parser.add_argument("--segment-bytes", type=int, required=True)
    arguments = parser.parse_args()
    json.dump(asdict(measure(arguments.directory, arguments.end_offset, arguments.segment_bytes)), sys.stdout)


if __name__ == "__main__":
    main()
