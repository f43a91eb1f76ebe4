"""A bridge over a cluster of three Apache Kafkas: kills under load. Run this family with `scripts/bench bridge`.

`scripts/bench rooms --bridge` uses the servers of this package, too.
"""

FAMILY = "bridge"
