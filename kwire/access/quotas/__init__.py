"""Client quotas: who may use how much. Without sockets and clocks: callers pass the time or a function for it."""
