"""How long anybody waits for the server: longer than the longest stall that was ever seen, and not for ever."""

ANSWER_SECONDS_MAX = 150
