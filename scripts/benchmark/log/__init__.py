"""The second family of works: what durability, recovery, compaction and very many topics cost.

Each work starts the servers it needs with the settings it needs, one at a time, and removes them again, because most of
them end a server in the middle or fill the disk. Run it with `scripts/bench log`.
"""

FAMILY = "log"
