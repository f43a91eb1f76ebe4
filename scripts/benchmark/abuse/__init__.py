"""The seventh family of works: attacks. One hostile client at a time, and what it does to everybody else.

Each attack has a server of its own. The table shows the longest stall of the event loop, the growth of memory, and the
latency of a good client before the attack and during it. Run it with `scripts/bench abuse`.
"""

FAMILY = "abuse"
