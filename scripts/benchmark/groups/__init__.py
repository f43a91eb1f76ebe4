"""The third family of works: the cost of consumer groups. Rebalances, offset commits, and very many heartbeats.

Separate programs simulate the members on raw sockets, with one connection each. Stock clients are not used, because
they decide themselves when to send a heartbeat, and the machine cannot run ten thousand of them. Run the family with
`scripts/bench groups`.
"""

FAMILY = "groups"
