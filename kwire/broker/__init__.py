"""What the product does, free of protocols: topics, their partitions, appending, reading and waiting.

Every write enters a partition through `Partition.append`; every reader is woken by the same signal, the rise of its
high watermark. Below is `storage`, which knows files; above are handlers, which know Kafka's messages.
"""
