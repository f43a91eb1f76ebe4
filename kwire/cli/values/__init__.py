"""The values that users give: KEY=VALUE, times and durations, lines of standard input."""
