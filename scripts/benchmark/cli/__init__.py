"""The ninth family of works: the command line beside kcat. Run it with `scripts/bench cli`.

Both programs write the same file to one kwire server and read the same topic. Start-up times are measured, too.
"""

FAMILY = "cli"
