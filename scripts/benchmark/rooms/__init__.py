"""The fourth family of works: rooms, beside a NATS server with JetStream. Broadcasts, publishing, very many rooms.

Both servers get their load from one program, `load/`, written in Go. Run it with `scripts/bench rooms`.
"""

FAMILY = "rooms"
