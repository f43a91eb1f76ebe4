"""The seventh family of works: attacks. Measures how one hostile client affects the other clients.

Each attack has its own server. The table shows the longest stall of the event loop, the growth of memory, and the
latency of a good client before the attack and during it. Run it with `scripts/bench abuse`.
"""

FAMILY = "abuse"
