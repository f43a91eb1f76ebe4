"""DescribeLogDirs, key 35: the data directories of a broker and the partitions in them.

Version 2 is flexible. Version 3 adds an error for the whole response. Version 4 adds the size and free space of the
volume. Version 5 adds whether a directory is cordoned.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Int16, Int32, Int64, String, TopicName


@struct()
class DescribableLogDirTopic:
    topic: TopicName = field("0+")
    partitions: Array[Int32] = field("0+")


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: Array[DescribableLogDirTopic] | None = field("0+")


@struct()
class DescribeLogDirsPartition:
    partition_index: Int32 = field("0+")
    partition_size: Int64 = field("0+")
    offset_lag: Int64 = field("0+")
    is_future_key: Bool = field("0+")


@struct()
class DescribeLogDirsTopic:
    name: TopicName = field("0+")
    partitions: Array[DescribeLogDirsPartition] = field("0+")


@struct()
class DescribeLogDirsResult:
    error_code: Int16 = field("0+")
    log_dir: String = field("0+")
    topics: Array[DescribeLogDirsTopic] = field("0+")
    total_bytes: Int64 = field("4+", default=-1)
    usable_bytes: Int64 = field("4+", default=-1)
    is_cordoned: Bool = field("5+", default=False)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("3+", default=0)
    results: Array[DescribeLogDirsResult] = field("0+")


DESCRIBE_LOG_DIRS = Api(DescribeLogDirsRequest, DescribeLogDirsResponse)
