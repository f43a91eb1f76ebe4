"""What the logs and their keepers have to say, as Prometheus families; a part of GET /metrics."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kwire.web.services import WebServices

OTHER_TOPICS = "(others)"


def storage_families(services: WebServices, sizes: Mapping[str, int], other_bytes: int) -> Iterator[Metric]:
    """`sizes` are the bytes of each topic that has a series of its own, `other_bytes` those of all others."""
    yield from _logs(services, sizes, other_bytes)
    yield from _harm(services)
    yield from _syncs(services)
    yield from _lanes(services)
    yield from _retention(services)
    yield from _cleaning(services)
    yield from _scrub(services)
    yield from _moves(services)


def _logs(services: WebServices, sizes: Mapping[str, int], other_bytes: int) -> Iterator[Metric]:
    topics = services.topics
    opened = [partition.maintenance() for partition in topics.open_partitions if partition.is_open]
    size = GaugeMetricFamily("kwire_storage_log_size_bytes", "Bytes of records, by topic.", labels=["topic"])
    for name, topic_bytes in sizes.items():
        size.add_metric([name], topic_bytes)
    if len(topics) > len(sizes):
        size.add_metric([OTHER_TOPICS], other_bytes)
    yield size
    yield GaugeMetricFamily("kwire_broker_topics", "Topics, internal ones included.", value=len(topics))
    yield GaugeMetricFamily(
        "kwire_broker_partitions", "Partitions of all topics.", value=topics.catalogue.partition_count
    )
    yield GaugeMetricFamily(
        "kwire_storage_open_logs", "Logs that are open; all others are on disk only.", value=len(opened)
    )
    segments = sum(log.segment_count for log in opened)
    yield GaugeMetricFamily("kwire_storage_segments", "Segments of the open logs.", value=segments)
    yield CounterMetricFamily(
        "kwire_storage_cold_reads", "Reads whose pages came from the disk.", value=services.cold_reads()
    )


def _harm(services: WebServices) -> Iterator[Metric]:
    """Only open logs are asked, but a log with harm is never put away."""
    logs = [partition.maintenance() for partition in services.topics.open_partitions if partition.is_open]
    ranges = [one for log in logs for one in log.quarantined]
    yield GaugeMetricFamily(
        "kwire_storage_quarantined_ranges", "Ranges of logs that cannot be read.", value=len(ranges)
    )
    yield GaugeMetricFamily(
        "kwire_storage_quarantined_bytes",
        "Bytes that cannot be read and were left as they are.",
        value=sum(one.size_bytes for one in ranges),
    )
    yield GaugeMetricFamily(
        "kwire_storage_refusing_logs",
        "Logs that take no records: damaged at the end, or a sync has failed.",
        value=sum(not log.is_writable for log in logs),
    )
    yield GaugeMetricFamily(
        "kwire_storage_torn_bytes",
        "Bytes of unfinished writes that were cut off at the last start.",
        value=sum(log.torn_bytes for log in logs),
    )
    yield GaugeMetricFamily(
        "kwire_storage_offline_partitions",
        "Partitions that are not served because their folder or its metadata is lost; the log names the remedy.",
        value=len(services.topics.offline_partitions),
    )
    yield GaugeMetricFamily(
        "kwire_storage_offline_directories",
        "Data directories that could not be opened.",
        value=services.offline_directories(),
    )


def _syncs(services: WebServices) -> Iterator[Metric]:
    syncs = services.keepers.syncs
    yield CounterMetricFamily("kwire_storage_sync_rounds", "Sync rounds since the start.", value=syncs.rounds)
    yield CounterMetricFamily("kwire_storage_synced_files", "Files they were for.", value=syncs.files)
    yield CounterMetricFamily("kwire_storage_sync_failures", "Logs lost to a failed sync.", value=syncs.failures)
    yield CounterMetricFamily(
        "kwire_storage_sync_delays", "Syncs put off because no file descriptor was left.", value=syncs.delays
    )
    yield GaugeMetricFamily(
        "kwire_storage_sync_seconds_max", "The longest sync round since the start.", value=syncs.longest_seconds
    )


def _lanes(services: WebServices) -> Iterator[Metric]:
    """By lane: all threads of the server that touch the disk."""
    labels = ["lane"]
    queue = GaugeMetricFamily(
        "kwire_storage_lane_queue_length", "Jobs that wait for a thread of a disk lane.", labels=labels
    )
    jobs = CounterMetricFamily("kwire_storage_lane_jobs", "Jobs that a disk lane has done.", labels=labels)
    refusals = CounterMetricFamily(
        "kwire_storage_lane_refusals",
        "Jobs that a disk lane did not take at once, because its queue was full.",
        labels=labels,
    )
    longest = GaugeMetricFamily(
        "kwire_storage_lane_seconds_max",
        "The longest job of a disk lane since the start; one that still runs counts.",
        labels=labels,
    )
    for lane in services.topics.lanes.all:
        queue.add_metric([lane.name], lane.queue_length)
        jobs.add_metric([lane.name], lane.jobs)
        refusals.add_metric([lane.name], lane.refusals)
        longest.add_metric([lane.name], lane.longest_seconds)
    yield from (queue, jobs, refusals, longest)


def _retention(services: WebServices) -> Iterator[Metric]:
    retention = services.keepers.retention
    yield GaugeMetricFamily(
        "kwire_storage_reserve_bytes",
        "Disk space that is reserved for the work that frees space.",
        value=retention.reserved_bytes,
    )
    yield GaugeMetricFamily(
        "kwire_retention_undeleted_files",
        "Removed segments whose files are still there: they wait for their time, or could not be deleted.",
        value=len(retention.deletions),
    )
    yield CounterMetricFamily(
        "kwire_retention_deleted_segments", "Segments retention took out of logs.", value=retention.deleted_segments
    )
    yield CounterMetricFamily("kwire_retention_deleted_bytes", "Their bytes.", value=retention.deleted_bytes)
    yield CounterMetricFamily("kwire_retention_failures", "Logs it could not deal with.", value=retention.failures)


def _cleaning(services: WebServices) -> Iterator[Metric]:
    cleaning = services.keepers.cleaning
    yield CounterMetricFamily("kwire_cleaner_compactions", "Logs compacted.", value=cleaning.cleaned_count)
    yield CounterMetricFamily("kwire_cleaner_read_bytes", "Bytes compaction read.", value=cleaning.read_bytes)
    yield CounterMetricFamily("kwire_cleaner_written_bytes", "Bytes it wrote.", value=cleaning.written_bytes)
    yield CounterMetricFamily("kwire_cleaner_removed_bytes", "Bytes logs lost by it.", value=cleaning.removed_bytes)
    yield CounterMetricFamily("kwire_cleaner_dropped_records", "Records they lost.", value=cleaning.dropped_records)
    yield CounterMetricFamily("kwire_cleaner_failures", "Compactions that failed.", value=cleaning.failures)
    yield GaugeMetricFamily(
        "kwire_cleaner_uncleanable_partitions",
        "Partitions that are not compacted any more, because of damage.",
        value=len(cleaning.uncleanable),
    )
    yield GaugeMetricFamily(
        "kwire_cleaner_dirtiest_ratio", "Share of uncompacted bytes of the dirtiest log.", value=cleaning.dirtiest_ratio
    )


def _scrub(services: WebServices) -> Iterator[Metric]:
    scrub = services.keepers.scrub
    yield CounterMetricFamily("kwire_scrub_bytes", "Bytes whose checksums were checked.", value=scrub.scrubbed_bytes)
    yield CounterMetricFamily("kwire_scrub_segments", "Segments that were checked.", value=scrub.scrubbed_segments)
    yield CounterMetricFamily("kwire_scrub_findings", "Damage that was found.", value=scrub.findings)


def _moves(services: WebServices) -> Iterator[Metric]:
    moves = services.keepers.moves
    yield GaugeMetricFamily(
        "kwire_moves_pending", "Partitions on their way to another data directory.", value=moves.moving_count
    )
    yield CounterMetricFamily("kwire_moves_finished", "Partitions that got there.", value=moves.moved_count)
    yield CounterMetricFamily("kwire_moves_copied_bytes", "Bytes copied for it.", value=moves.copied_bytes)
    yield CounterMetricFamily("kwire_moves_failures", "Moves that failed.", value=moves.failures)
