"""The settings of the master."""

from msgspec import Struct


class MasterSettings(Struct, frozen=True, kw_only=True):
    """Times are in milliseconds of the master's clock, which only goes forward."""

    # How long a leader leads after a heartbeat.
    lease_ttl_ms: int = 10_000
    # How long a candidate takes part in elections after a heartbeat.
    candidate_ttl_ms: int = 10_000
    # A store without a heartbeat for this time gets no new segments, and leaders roll away from it.
    store_timeout_ms: int = 10_000
    # After this time its sealed segments are copied to other stores.
    store_replace_ms: int = 300_000
    # A copy that is not reported within this time is requested again.
    copy_timeout_ms: int = 60_000
    # The maximum number of copies between stores at a time.
    copies_max: int = 10
    # A new segment of a whole log waits this long for a store that still copies the segment before it.
    learner_wait_ms: int = 2_000
    # Stores with less free space get new segments only if there are too few others.
    free_bytes_min: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in ("learner_wait_ms", "free_bytes_min")):
                raise ValueError(f"{name} must be positive, got {value}")
        if self.store_replace_ms < self.store_timeout_ms:
            raise ValueError(
                f"store_replace_ms must be at least store_timeout_ms ({self.store_timeout_ms}), "
                f"got {self.store_replace_ms}"
            )
