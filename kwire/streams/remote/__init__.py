"""StreamLog over the Kafka protocol: logs of another kwire server or of any Kafka cluster.

`RemoteLogs` is the entry point. The parts without I/O (`partition_queue`, `merging`, `fetch_session`, `batch_cache`)
are state machines; `producer`, `fetcher` and `reads` send their requests.
"""
