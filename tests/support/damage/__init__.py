"""The fault matrix: every kind of file in a data directory, damaged in every way, and what a server makes of it."""
