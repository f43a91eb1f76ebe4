"""Recovery: opens a log after a stop or a crash, verifies its files and handles damage."""
