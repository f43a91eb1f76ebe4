"""AddRaftVoter, key 80: make a controller a voter of the metadata log.

Version 1 adds whether the response is sent before or after the change is committed.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import Array, Bool, ErrorText, Int16, Int32, String, UInt16, Uuid


@struct()
class Listener:
    name: String = field("0+")
    host: String = field("0+")
    port: UInt16 = field("0+")


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: String | None = field("0+")
    timeout_ms: Int32 = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    listeners: Array[Listener] = field("0+")
    ack_when_committed: Bool = field("1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


ADD_RAFT_VOTER = Api(AddRaftVoterRequest, AddRaftVoterResponse)
