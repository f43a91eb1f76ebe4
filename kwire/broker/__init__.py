"""Topics and partitions, independent of any protocol: appending, reading, waiting and background maintenance.

Clients' batches are written by `Partition.append`. Waiting readers are woken when the partition's high watermark rises.
"""
