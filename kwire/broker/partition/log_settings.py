"""The settings of a log, derived from the settings of its topic."""

from kwire.config.resources.topic import TopicSettings
from storage.batch.format import CREATE_TIME, LOG_APPEND_TIME
from storage.log.settings import LogSettings


def log_settings(settings: TopicSettings) -> LogSettings:
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        segment_jitter_ms=settings.segment_jitter_ms,
        index_interval_bytes=settings.index_interval_bytes,
        timestamp_type=LOG_APPEND_TIME if settings.is_log_append_time else CREATE_TIME,
    )
