"""DeleteRecords, key 21: delete the records of partitions below an offset.

Version 2 is flexible.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Int16, Int32, Int64, TopicName


@struct()
class DeleteRecordsPartition:
    partition_index: Int32 = field("0+")
    offset: Int64 = field("0+")


@struct()
class DeleteRecordsTopic:
    name: TopicName = field("0+")
    partitions: Array[DeleteRecordsPartition] = field("0+")


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: Array[DeleteRecordsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")


@struct()
class DeleteRecordsPartitionResult:
    partition_index: Int32 = field("0+")
    low_watermark: Int64 = field("0+")
    error_code: Int16 = field("0+")


@struct()
class DeleteRecordsTopicResult:
    name: TopicName = field("0+")
    partitions: Array[DeleteRecordsPartitionResult] = field("0+")


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: Array[DeleteRecordsTopicResult] = field("0+")


DELETE_RECORDS = Api(DeleteRecordsRequest, DeleteRecordsResponse)
