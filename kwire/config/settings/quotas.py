"""Broker settings of the windows over which client quotas are computed."""

from kwire.config.setting import Kind, Setting, between

# Each client with a quota has this many samples in memory. Kafka has no maximum.
SAMPLES_MAX = 1_000
SAMPLE_SECONDS_MAX = 3_600

QUOTA_SETTINGS = (
    Setting(
        "quota.window.num",
        Kind.INT,
        11,
        "Number of samples over which the rate of a client with a quota is computed. The last one is not complete.",
        between(1, SAMPLES_MAX),
    ),
    Setting(
        "quota.window.size.seconds",
        Kind.INT,
        1,
        "Length of a sample. It is also the longest throttle time for request_percentage and for new connections.",
        between(1, SAMPLE_SECONDS_MAX),
    ),
    Setting(
        "controller.quota.window.num",
        Kind.INT,
        11,
        "As quota.window.num, for controller_mutation_rate: a client may create or delete as many partitions at once "
        "as its rate allows in this many samples.",
        between(1, SAMPLES_MAX),
    ),
    Setting(
        "controller.quota.window.size.seconds",
        Kind.INT,
        1,
        "Length of a sample for controller_mutation_rate.",
        between(1, SAMPLE_SECONDS_MAX),
    ),
)
