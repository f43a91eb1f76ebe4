"""UnregisterBroker: the only broker stays."""

from kwire.errors import ErrorCode
from kwire.wire.apis import UNREGISTER_BROKER
from kwire.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.node import NODE_ID, QuietNode, in_every_version, in_loop


@in_every_version(UNREGISTER_BROKER)
@in_loop
async def test_this_node_is_kept_and_others_are_unknown(node: QuietNode, version: int) -> None:
    cases = {NODE_ID: ErrorCode.INVALID_REQUEST}
    cases |= dict.fromkeys((NODE_ID + 1, 0, -1, 2**31 - 1), ErrorCode.BROKER_ID_NOT_REGISTERED)
    for broker_id, code in cases.items():
        answer = await node.ask(UnregisterBrokerRequest(broker_id=broker_id), version)
        assert answer.error_code == code
        assert str(broker_id) in answer.error_message
