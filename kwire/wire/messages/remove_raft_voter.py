"""RemoveRaftVoter, key 81: remove a controller from the voters of the metadata log."""

from kwire.wire.schema import Api, field, message
from kwire.wire.types import ErrorText, Int16, Int32, String, Uuid


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: String | None = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


REMOVE_RAFT_VOTER = Api(RemoveRaftVoterRequest, RemoveRaftVoterResponse)
