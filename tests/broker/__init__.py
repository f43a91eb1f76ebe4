"""The broker: topics, partitions, waiting, producer ids, the coordinators' log."""
