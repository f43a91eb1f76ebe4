"""CreateAcls, key 30: add ACLs.

Version 1 adds prefixed and literal patterns. Version 2 is flexible. Version 3 adds users as a resource.
"""

from kwire.wire.schema import Api, field, message, struct
from kwire.wire.types import AclResourceName, Array, ErrorText, Int8, Int16, Int32, String


@struct()
class AclCreation:
    resource_type: Int8 = field("0+")
    resource_name: AclResourceName = field("0+")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: String = field("0+")
    host: String = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: Array[AclCreation] = field("0+")


@struct()
class AclCreationResult:
    error_code: Int16 = field("0+")
    error_message: ErrorText | None = field("0+")


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32 = field("0+", default=0)
    results: Array[AclCreationResult] = field("0+")


CREATE_ACLS = Api(CreateAclsRequest, CreateAclsResponse)
