"""The timeout of all requests. It is longer than the longest stall that was ever observed."""

ANSWER_SECONDS_MAX = 150
