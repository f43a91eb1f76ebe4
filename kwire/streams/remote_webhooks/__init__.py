"""The storage of webhooks on a cluster: a compacted topic with one partition, which one bridge at a time writes.

`state_topic` writes it and notices when another bridge has taken over, `stored_state` reads it, `topic_setup` creates
and checks it, and `definition_store` keeps the definitions in it.

The key of each record is a JSON array. Those of a webhook's state begin with its id (see
`streams/webhooks/consumer`), its definition has the key `["definition", id]`, and `["owner"]` is the bridge that
delivers.
"""
