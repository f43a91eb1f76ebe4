"""The metadata store: what was committed is there, what was not is not."""
