"""The log of a replica: batches with the offsets of their leader, and an end that may be cut until it is committed."""
