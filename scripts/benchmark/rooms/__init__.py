"""The fourth family of works: rooms, compared with a NATS server with JetStream. Broadcasts, publishing, many rooms.

A Go program (`load/`) generates the load for both servers. Run the family with `scripts/bench rooms`.
"""

FAMILY = "rooms"
