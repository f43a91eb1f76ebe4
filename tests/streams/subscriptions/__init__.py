"""Who listens to what, in virtual time: history, live, and readers who are too slow."""
