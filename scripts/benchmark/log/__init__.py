"""The second family of works: the cost of durability, recovery, compaction and very many topics.

Each work starts its own servers, with its own settings, and deletes their data afterwards, because most works kill a
server or need much disk space. Run the family with `scripts/bench log`.
"""

FAMILY = "log"
