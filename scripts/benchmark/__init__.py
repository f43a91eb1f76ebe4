"""The benchmark: the same workloads on kwire and on Apache Kafka, on one machine.

A workload is called a *work*. Nothing here imports kwire: both servers are separate processes. The benchmark sends load
over loopback and reads figures from outside (/proc, /metrics), so the same code measures both. Two programs in `log/`
are exceptions: they measure `storage` without a server. Run the benchmark with `scripts/bench`. docs/benchmarks.md
explains the figures.
"""
