"""A bridge over a cluster of three Apache Kafkas: `scripts/bench rooms --bridge`."""
