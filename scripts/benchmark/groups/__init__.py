"""The third family of works: what consumer groups cost. Rebalances, offset commits, and very many heartbeats.

Members are played on raw sockets, one connection each, by programs of their own: a stock client decides for itself when
it sends a heartbeat, and ten thousand of them do not fit on the machine. Run it with `scripts/bench groups`.
"""

FAMILY = "groups"
