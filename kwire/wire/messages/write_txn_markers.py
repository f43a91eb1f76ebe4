"""WriteTxnMarkers, key 27: write the markers that commit or abort transactions in partitions.

Version 1 is flexible. Version 2 adds the version of the transaction protocol (KIP-1228).
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, Int8, Int16, Int32, Int64, TopicName


@struct()
class WritableTxnMarkerTopic:
    name: TopicName = field("0+")
    partition_indexes: Array[Int32] = field("0+")


@struct()
class WritableTxnMarker:
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    transaction_result: Bool = field("0+")
    topics: Array[WritableTxnMarkerTopic] = field("0+")
    coordinator_epoch: Int32 = field("0+")
    transaction_version: Int8 = field("2+", default=0)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: Array[WritableTxnMarker] = field("0+")


@struct()
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")


@struct()
class WritableTxnMarkerTopicResult:
    name: TopicName = field("0+")
    partitions: Array[WritableTxnMarkerPartitionResult] = field("0+")


@struct()
class WritableTxnMarkerResult:
    producer_id: Int64 = field("0+")
    topics: Array[WritableTxnMarkerTopicResult] = field("0+")


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: Array[WritableTxnMarkerResult] = field("0+")


WRITE_TXN_MARKERS = Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse)
