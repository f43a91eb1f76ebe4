"""Topic ids as text."""

import base64


def id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka prints it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
