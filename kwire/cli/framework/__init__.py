"""What all commands of `kwire` share: parsers, the runner, output formats, confirmation, completion.

A command or verb is a module with a function `add(parser)`, which declares its options and sets `run`:

    def add(parser: CommandParser) -> None:
        parser.add_argument("names", metavar="TOPIC", nargs="+")
        add_kafka_options(parser)          # kwire.cli.connection.options
        add_output(parser)                 # kwire.cli.framework.output
        parser.set_defaults(run=run)

    def run(options: argparse.Namespace) -> int | None:
        with kafka_client_of(options) as client:
            print_rows(rows, COLUMNS, options)

`run` returns an exit code, or None for success. To fail, it raises ValueError, OSError, KafkaError or StorageError with
a message for the user, `CannotContinue` if other names would fail, too, or `CannotRun` (exit code 2). `runner.py`
prints the message and chooses the exit code.
"""
