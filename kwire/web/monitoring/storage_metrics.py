"""Metrics of the logs and of the maintenance services; a part of GET /metrics."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kwire.broker.admin.disk_space import VolumeSpace
from kwire.web.monitoring.text_format import add_latency
from kwire.web.services import StorageServices


def storage_families(storage: StorageServices, spaces: Mapping[str, VolumeSpace]) -> Iterator[Metric]:
    """Generate all storage metrics without those of topics. `spaces` is the space of each data directory's volume."""
    yield from _logs(storage)
    yield from _directories(spaces)
    yield from _damage(storage)
    yield from _syncs(storage)
    yield from _lanes(storage)
    yield from _retention(storage)
    yield from _compaction(storage)
    yield from _scrub(storage)
    yield from _relocations(storage)


def _logs(storage: StorageServices) -> Iterator[Metric]:
    topics = storage.topics
    opened = [partition.maintenance() for partition in topics.open_partitions if partition.is_open]
    yield GaugeMetricFamily("kwire_broker_topics", "Topics, internal ones included.", value=len(topics))
    yield GaugeMetricFamily(
        "kwire_broker_partitions", "Partitions of all topics.", value=topics.catalogue.partition_count
    )
    yield GaugeMetricFamily("kwire_storage_open_logs", "Open logs; all others are on disk only.", value=len(opened))
    segments = sum(log.segment_count for log in opened)
    yield GaugeMetricFamily("kwire_storage_segments", "Segments of the open logs.", value=segments)
    yield CounterMetricFamily(
        "kwire_storage_cold_reads", "Reads whose pages were read from the disk.", value=storage.cold_reads()
    )


def _directories(spaces: Mapping[str, VolumeSpace]) -> Iterator[Metric]:
    """Generate the metrics of the volumes. Directories on the same volume have the same values."""
    labels = ["directory"]
    size = GaugeMetricFamily("kwire_disk_size_bytes", "Size of the volume of a data directory.", labels=labels)
    free = GaugeMetricFamily("kwire_disk_free_bytes", "Bytes of the volume that the server may use.", labels=labels)
    used = GaugeMetricFamily(
        "kwire_disk_used_bytes", "Bytes of the volume that are in use, or reserved for root.", labels=labels
    )
    for path, space in spaces.items():
        size.add_metric([path], space.size_bytes)
        free.add_metric([path], space.free_bytes)
        used.add_metric([path], space.used_bytes)
    yield from (size, free, used)


def _damage(storage: StorageServices) -> Iterator[Metric]:
    """Generate the metrics of damaged logs. Only open logs are examined. That is sufficient, because the server keeps
    damaged logs open even if they are idle."""
    logs = [partition.maintenance() for partition in storage.topics.open_partitions if partition.is_open]
    ranges = [one for log in logs for one in log.quarantined]
    yield GaugeMetricFamily(
        "kwire_storage_quarantined_ranges", "Ranges of logs that cannot be read.", value=len(ranges)
    )
    yield GaugeMetricFamily(
        "kwire_storage_quarantined_bytes",
        "Bytes of logs that cannot be read; they are left unchanged.",
        value=sum(one.size_bytes for one in ranges),
    )
    yield GaugeMetricFamily(
        "kwire_storage_refusing_logs",
        "Logs that accept no records: damaged at the end, or a sync has failed.",
        value=sum(not log.is_writable for log in logs),
    )
    yield GaugeMetricFamily(
        "kwire_storage_torn_bytes",
        "Bytes of incomplete writes that were truncated at the last start.",
        value=sum(log.torn_bytes for log in logs),
    )
    yield GaugeMetricFamily(
        "kwire_storage_offline_partitions",
        "Partitions that are not served because their folder or metadata is lost; the server's log says what to do.",
        value=len(storage.topics.offline_partitions),
    )
    yield GaugeMetricFamily(
        "kwire_storage_offline_directories",
        "Data directories that could not be opened.",
        value=storage.offline_directories(),
    )


def _syncs(storage: StorageServices) -> Iterator[Metric]:
    syncs = storage.maintenance.syncs
    yield CounterMetricFamily("kwire_storage_sync_rounds", "Sync rounds since the start.", value=syncs.rounds)
    yield CounterMetricFamily("kwire_storage_synced_files", "Files synced.", value=syncs.files)
    yield CounterMetricFamily(
        "kwire_storage_sync_failures",
        "Failed syncs. A log whose sync failed accepts no records until the next start.",
        value=syncs.failures,
    )
    yield CounterMetricFamily(
        "kwire_storage_sync_delays", "Syncs delayed because no file descriptor was free.", value=syncs.delays
    )
    durations = HistogramMetricFamily("kwire_storage_sync_round_seconds", "Duration of sync rounds.")
    add_latency(durations, [], syncs.durations)
    yield durations
    yield GaugeMetricFamily(
        "kwire_storage_sync_seconds_max", "The longest sync round since the start.", value=syncs.longest_seconds
    )


def _lanes(storage: StorageServices) -> Iterator[Metric]:
    """Generate the metrics of the disk lanes, the thread pools that do all disk work of the server."""
    labels = ["lane"]
    queue = GaugeMetricFamily(
        "kwire_storage_lane_queue_length", "Jobs waiting for a thread of a disk lane.", labels=labels
    )
    jobs = CounterMetricFamily("kwire_storage_lane_jobs", "Jobs completed by a disk lane.", labels=labels)
    refusals = CounterMetricFamily(
        "kwire_storage_lane_refusals",
        "Jobs that a disk lane did not accept immediately, because its queue was full.",
        labels=labels,
    )
    longest = GaugeMetricFamily(
        "kwire_storage_lane_seconds_max",
        "The longest job of a disk lane since the start, including running ones.",
        labels=labels,
    )
    for lane in storage.topics.lanes.all:
        queue.add_metric([lane.name], lane.queue_length)
        jobs.add_metric([lane.name], lane.jobs)
        refusals.add_metric([lane.name], lane.refusals)
        longest.add_metric([lane.name], lane.longest_seconds)
    yield from (queue, jobs, refusals, longest)


def _retention(storage: StorageServices) -> Iterator[Metric]:
    retention = storage.maintenance.retention
    yield GaugeMetricFamily(
        "kwire_storage_reserve_bytes",
        "Disk space reserved for operations that free space.",
        value=retention.reserved_bytes,
    )
    yield GaugeMetricFamily(
        "kwire_retention_undeleted_files",
        "Removed segments whose files still exist: their deletion is delayed, or failed.",
        value=len(retention.file_remover),
    )
    yield CounterMetricFamily(
        "kwire_retention_deleted_segments", "Segments removed by retention.", value=retention.deleted_segments
    )
    yield CounterMetricFamily(
        "kwire_retention_deleted_bytes", "Bytes of the segments removed by retention.", value=retention.deleted_bytes
    )
    yield CounterMetricFamily("kwire_retention_failures", "Logs for which retention failed.", value=retention.failures)


def _compaction(storage: StorageServices) -> Iterator[Metric]:
    log_cleaner = storage.maintenance.log_cleaner
    yield CounterMetricFamily("kwire_cleaner_compactions", "Logs compacted.", value=log_cleaner.cleaned_count)
    yield CounterMetricFamily("kwire_cleaner_read_bytes", "Bytes read by compaction.", value=log_cleaner.read_bytes)
    yield CounterMetricFamily(
        "kwire_cleaner_written_bytes", "Bytes written by compaction.", value=log_cleaner.written_bytes
    )
    yield CounterMetricFamily(
        "kwire_cleaner_removed_bytes", "Bytes removed by compaction.", value=log_cleaner.removed_bytes
    )
    yield CounterMetricFamily(
        "kwire_cleaner_dropped_records", "Records removed by compaction.", value=log_cleaner.dropped_records
    )
    yield CounterMetricFamily("kwire_cleaner_failures", "Compactions that failed.", value=log_cleaner.failures)
    yield GaugeMetricFamily(
        "kwire_cleaner_uncleanable_partitions",
        "Partitions that are no longer compacted because they are damaged.",
        value=len(log_cleaner.uncleanable),
    )
    yield GaugeMetricFamily(
        "kwire_cleaner_dirtiest_ratio",
        "The largest share of uncompacted bytes in a log.",
        value=log_cleaner.dirtiest_ratio,
    )


def _scrub(storage: StorageServices) -> Iterator[Metric]:
    scrub = storage.maintenance.scrub
    yield CounterMetricFamily(
        "kwire_scrub_bytes", "Bytes whose checksums the scrub has verified.", value=scrub.scrubbed_bytes
    )
    yield CounterMetricFamily(
        "kwire_scrub_segments", "Segments that the scrub has verified.", value=scrub.scrubbed_segments
    )
    yield CounterMetricFamily("kwire_scrub_findings", "Damaged places that the scrub has found.", value=scrub.findings)


def _relocations(storage: StorageServices) -> Iterator[Metric]:
    relocations = storage.maintenance.relocations
    yield GaugeMetricFamily(
        "kwire_relocations_pending",
        "Partitions being moved to another data directory.",
        value=relocations.moving_count,
    )
    yield CounterMetricFamily(
        "kwire_relocations_finished", "Partitions moved to another data directory.", value=relocations.moved_count
    )
    yield CounterMetricFamily(
        "kwire_relocations_copied_bytes", "Bytes copied to another data directory.", value=relocations.copied_bytes
    )
    yield CounterMetricFamily(
        "kwire_relocations_failures",
        "Partitions whose move to another data directory failed.",
        value=relocations.failures,
    )
