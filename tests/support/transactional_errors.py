"""What clients of transactions rightly tell when their server dies under them, each with its reason.

Workers count what they are told under the names made here; a run has failed if it counted one that is not explained.
"""

from collections.abc import Iterable

MARK = "told "


def told(where: str, error: str, *, is_replaced: bool = False) -> str:
    """The name to count an error under. Replaced is a producer whose transactional id somebody else has taken."""
    return f"{MARK}{'after its replacement ' if is_replaced else ''}at {where}: {error}"


# Of somebody who has all the time; who is in a hurry may well hear nothing.
NO_ANSWER = "no answer in all that time"
NEVER_BEGUN = "INVALID_TXN_STATE for what the server may never have heard of"

REASONS = {
    # Fences, which are what a replaced producer is there to meet. Nobody else may.
    told("delivery", "INVALID_PRODUCER_EPOCH", is_replaced=True): "a zombie's record is refused",
    told("send", "INVALID_PRODUCER_EPOCH", is_replaced=True): "a zombie's record is refused",
    told("aiokafka's send", "ProducerFenced", is_replaced=True): "a zombie's record is refused",
    told("end", "fenced", is_replaced=True): "a zombie's commit is refused",
    # librdkafka drops what it has not sent yet when a transaction is aborted, and when the producer is let go.
    told("delivery", "_PURGE_QUEUE"): "the transaction is aborted, or the producer let go",
    told("delivery", "_PURGE_QUEUE", is_replaced=True): "the producer is let go",
    # librdkafka is given less patience for positions than for records, and the transaction is aborted when that ends.
    # The error is the last that it met. None is explained for a producer that had the server all its life.
    told("positions", "_TIMED_OUT"): "the server is away for longer than the patience of the call",
    told("positions", "_TRANSPORT"): "the connection went away with the server",
    told("positions", "COORDINATOR_LOAD_IN_PROGRESS"): "the patience ends while the server, back, loads the group",
    told("positions", "stuck"): "librdkafka's issues 5456 and 5511, see TransactionalProducer.send_positions",
    # librdkafka of the first generation cannot know whether an AddPartitionsToTxn without answer was heard (the comment
    # in rd_kafka_txn_handle_AddPartitionsToTxn), so an abort sends EndTxn to be sure. If it was not heard, the server's
    # last word on the id is the commit of the transaction before, and the abort of a committed transaction is refused,
    # by Kafka too (TransactionCoordinator.endTransaction, CompleteCommit). librdkafka takes that for fatal.
    told("end", NEVER_BEGUN): "the request that would have begun the transaction went away with the server",
    # aiokafka's sender ends for good if the connection closes while it waits for FindCoordinator's answer: its
    # Sender._find_coordinator repeats the request after three errors, and this is none of them.
    told("aiokafka's send", "KafkaConnectionError"): "the connection went away during FindCoordinator",
    told("aiokafka's end", "KafkaConnectionError"): "the connection went away during FindCoordinator",
}


def unexplained(counted: Iterable[str]) -> list[str]:
    return sorted(what for what in counted if what.startswith(MARK) and what not in REASONS)
