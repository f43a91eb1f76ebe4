"""Exit codes that `kwire` and `python -m kwire.pipeline` share."""

# 128 + SIGINT: the exit code that shells report for a program that was ended by Ctrl-C.
INTERRUPTED = 130
