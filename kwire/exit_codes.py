"""Exit codes that the commands of `kwire` and the jobs of the pipeline share."""

DONE = 0
# The command ran, but it or a part of it failed. A server that refuses the login or the user is such a failure.
FAILED = 1
# Wrong arguments, or no connection to the server: nothing was done.
CANNOT_RUN = 2
# 128 + SIGINT: the exit code that shells report for a program that was ended by Ctrl-C.
INTERRUPTED = 130
# 128 + SIGPIPE: the exit code that shells report for a program whose output nobody reads.
BROKEN_PIPE = 141
