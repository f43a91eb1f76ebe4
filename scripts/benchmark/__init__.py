"""The bench: kwire and a real Apache Kafka side by side, on one machine, over the same work.

Nothing here imports kwire: both servers are processes that are started, loaded over loopback and read from the
outside (/proc, /metrics), so the same code measures either. The two exceptions are programs of their own in `log/`,
which measure `storage` without a server around it. Run it with `scripts/bench`; docs/benchmarks.md explains the
figures.
"""
