"""The WebSocket close code for the end of a subscription."""

from kwire.streams.subscriptions.control_messages import STOPPING, Closed
from kwire.web.requests.access import FORBIDDEN
from kwire.web.streaming.websocket_frames import GOING_AWAY, POLICY_VIOLATION, TRY_AGAIN_LATER


def close_code_of(message: Closed) -> int:
    if message.code == STOPPING:
        return GOING_AWAY
    return POLICY_VIOLATION if message.code == FORBIDDEN else TRY_AGAIN_LATER
