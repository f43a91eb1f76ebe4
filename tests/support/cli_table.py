"""One row for every verb of the program: a call that succeeds, one that is refused, and one with several names.

The rows are in an order in which their calls succeed one after the other on one server. Placeholders: {name} is the
name of what the calls create, {long} a name that is too long, {folder} a directory, {bootstrap} the address of the
server, and {webhook}, {key} and {producer_id} are what earlier calls have created.
"""

from typing import NamedTuple

from tests.support.cli_verbs import verbs_of_program

KAFKA, HTTP = "--bootstrap-server", "--http"
# Exit codes: a call that fails, and one that cannot run at all.
FAILED, CANNOT_RUN = 1, 2
YES, PASSWORD = "y\n", "secret-word\nsecret-word\n"
# A request of ApiVersions.
FRAME = "0000000f001200000000000100056b77697265"


class Refused(NamedTuple):
    """Arguments that are refused, a part of the message, and the exit code."""

    arguments: str
    message: str
    code: int = CANNOT_RUN


class Verb(NamedTuple):
    """How a verb is called, and what happens.

    `typed` is what the user types; without a terminal, an option replaces it. `server` is the option that names the
    server, for verbs that need one. `several` has a name that fails before one that succeeds, and `failure` is the
    message about the first.
    """

    call: str
    refused: Refused
    server: str = ""
    typed: str = ""
    is_table: bool = False
    code: int = 0
    several: str = ""
    failure: str = ""

    def piped(self) -> tuple[str, str]:
        """Return the arguments and the standard input of the call without a terminal."""
        if self.typed == PASSWORD:
            return f"{self.call} --password-stdin", "secret-word\n"
        return f"{self.call} --yes" if self.typed else self.call, ""


NOT_THERE = "no-such-{name}"


VERBS: dict[tuple[str, ...], Verb] = {
    ("topic", "create"): Verb(
        "{name} --partitions 2",
        Refused("a/b", "a/b", FAILED),
        KAFKA,
        several="a/b {name} --partitions 2",
        failure="'a/b'",
    ),
    ("topic", "list"): Verb("", Refused("orders", "unrecognized arguments: orders"), KAFKA, is_table=True),
    ("topic", "alter"): Verb(
        "{name} --config retention.ms=3600000",
        Refused("{name} --config retention.ms=soon", "retention.ms", FAILED),
        KAFKA,
        several=f"{NOT_THERE} {{name}} --config retention.ms=3600000",
        failure=f"topic {NOT_THERE} does not exist",
    ),
    ("topic", "add-partitions"): Verb(
        "{name} --partitions 3",
        Refused("{name} --partitions 0", "--partitions must be a positive number, got 0"),
        KAFKA,
        several=f"{NOT_THERE} {{name}} --partitions 3",
        failure=f"topic {NOT_THERE} does not exist",
    ),
    ("topic", "describe"): Verb(
        "{name} -o wide",
        Refused(NOT_THERE, f"topic {NOT_THERE} does not exist", FAILED),
        KAFKA,
        several=f"{NOT_THERE} {{name}}",
        failure=f"topic {NOT_THERE} does not exist",
    ),
    ("config", "describe"): Verb(
        "topic={name}",
        Refused("table=a", "table"),
        KAFKA,
        is_table=True,
        several=f"topic={NOT_THERE} topic={{name}}",
        failure=f"{NOT_THERE} does not exist",
    ),
    ("config", "set"): Verb(
        "topic={name} --config segment.bytes=2000000",
        Refused("topic={name} --config segment.bytes", "--config takes KEY=VALUE, not 'segment.bytes'"),
        KAFKA,
        several=f"topic={NOT_THERE} topic={{name}} --config segment.bytes=2000000",
        failure=f"{NOT_THERE} does not exist",
    ),
    ("config", "list"): Verb(
        "topic={name}",
        Refused("topic={name} -o xml", "'xml' is not a known -o/--output"),
        KAFKA,
        is_table=True,
        several=f"topic={NOT_THERE} topic={{name}}",
        failure=f"{NOT_THERE} does not exist",
    ),
    ("config", "delete"): Verb(
        "topic={name} --config segment.bytes",
        Refused("topic={name} --config segment.bytes", "add --yes"),
        KAFKA,
        YES,
        several=f"topic={NOT_THERE} topic={{name}} --config segment.bytes --yes",
        failure=f"{NOT_THERE} does not exist",
    ),
    ("topic", "produce"): Verb(
        "{name} --file {folder}/lines.txt",
        Refused("{name} --file {folder}/lines.txt --partition 77", "has no partition 77, only 0 to 2", FAILED),
        KAFKA,
    ),
    ("topic", "consume"): Verb(
        "{name} --from earliest --count 1", Refused("{name} --from soon", "--from: expected earliest, latest"), KAFKA
    ),
    ("topic", "export"): Verb(
        "{name} --file {folder}/records.jsonl",
        Refused("{name} --file {folder}/records.doc", "records.doc"),
        KAFKA,
    ),
    ("topic", "import"): Verb(
        "{name} --file {folder}/records.jsonl",
        Refused("{name} --file {folder}/missing.jsonl", "missing.jsonl: No such file", FAILED),
        KAFKA,
    ),
    ("group", "reset"): Verb(
        "{name} --to-earliest --topic {name} --execute",
        Refused("{name} --to soon", "--to: expected earliest, latest, current, an offset or a time, got 'soon'"),
        KAFKA,
        is_table=True,
        several=f"{NOT_THERE} {{name}} --to-current",
        failure=f"group {NOT_THERE} has no committed offsets",
    ),
    ("group", "list"): Verb("", Refused("--state", "argument --state: expected one argument"), KAFKA, is_table=True),
    ("group", "describe"): Verb(
        "{name}",
        Refused(NOT_THERE, f"group {NOT_THERE} does not exist", FAILED),
        KAFKA,
        several=f"{NOT_THERE} {{name}}",
        failure=f"group {NOT_THERE} does not exist",
    ),
    ("group", "export"): Verb(
        "{name}",
        Refused(NOT_THERE, f"group {NOT_THERE} has no committed offsets", FAILED),
        KAFKA,
        several=f"{NOT_THERE} {{name}}",
        failure=f"group {NOT_THERE} has no committed offsets",
    ),
    ("group", "delete-offsets"): Verb(
        "{name} --topic {name}:0", Refused("{name} --topic {name}:x --yes", "not a partition number: 'x'"), KAFKA, YES
    ),
    ("group", "delete"): Verb(
        "{name}",
        Refused(f"{NOT_THERE} --yes", f"group {NOT_THERE} does not exist", FAILED),
        KAFKA,
        YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=f"group {NOT_THERE} does not exist",
    ),
    ("txn", "list"): Verb("", Refused("--longer-than soon", "--longer-than"), KAFKA, is_table=True),
    ("txn", "describe"): Verb(
        "{name}",
        Refused(NOT_THERE, f"transactional id {NOT_THERE} does not exist", FAILED),
        KAFKA,
        several=f"{NOT_THERE} {{name}}",
        failure=f"transactional id {NOT_THERE} does not exist",
    ),
    ("txn", "producers"): Verb(
        "{name}",
        Refused("{name}:x", "not a partition number: 'x'"),
        KAFKA,
        is_table=True,
        several=f"{NOT_THERE} {{name}}",
        failure=f"topic {NOT_THERE} does not exist",
    ),
    ("txn", "find-hanging"): Verb("", Refused("{name}", "unrecognized arguments"), KAFKA, is_table=True),
    ("txn", "abort"): Verb(
        "{name}:0 --producer-id {producer_id}", Refused("{name} --start-offset 0 --yes", "TOPIC:PARTITION"), KAFKA, YES
    ),
    ("txn", "terminate"): Verb(
        "{name}",
        Refused(f"{NOT_THERE} --yes", f"transactional id {NOT_THERE} does not exist", FAILED),
        KAFKA,
        YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=f"transactional id {NOT_THERE} does not exist",
    ),
    ("backup", "create"): Verb(
        "{folder}/backup",
        Refused("{folder}/lines.txt", "lines.txt is not empty; name a folder that does not exist"),
        HTTP,
    ),
    ("backup", "verify"): Verb("{folder}/backup", Refused("{folder}", "is not a backup: it has no manifest.json")),
    ("backup", "restore"): Verb(
        "{folder}/backup {folder}/restored",
        Refused("{folder}/backup {folder}", "is not empty; a backup is restored only into empty directories"),
    ),
    ("log", "verify"): Verb("{folder}/restored", Refused("{folder}/missing", "missing is not a directory")),
    ("log", "adopt"): Verb("{folder}/restored", Refused("{folder}/missing", "missing is not a directory")),
    ("log", "dump"): Verb(
        "{folder}/restored --topic {name} --records",
        Refused("{folder}/restored --topic no", "has no folder of partition no-0"),
    ),
    ("topic", "trim"): Verb(
        "{name} --before latest",
        Refused("{name} --before soon --yes", "--before: expected an offset, latest"),
        KAFKA,
        YES,
    ),
    ("topic", "delete"): Verb(
        "{name}",
        Refused("{name}", "there is no terminal to ask whether to delete topic {name} with all records: add --yes"),
        KAFKA,
        YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=f"topic {NOT_THERE} does not exist",
    ),
    ("quota", "set"): Verb(
        "client-id={name} --config producer_byte_rate=1000000",
        Refused("client-id={name} --config producer_byte_rate=fast", "producer_byte_rate"),
        KAFKA,
        several="ip=127.0.0.1 client-id={name} --config producer_byte_rate=1000000",
        failure="ip=127.0.0.1: ",
    ),
    ("quota", "list"): Verb("client-id={name}", Refused("table=a", "table"), KAFKA, is_table=True),
    ("quota", "delete"): Verb("client-id={name}", Refused("table=a --yes", "table"), KAFKA, YES),
    ("user", "create"): Verb(
        "{name}",
        Refused("{name}", "there is no terminal to ask for the password: use --password-stdin"),
        KAFKA,
        PASSWORD,
    ),
    ("user", "list"): Verb("", Refused("--no-such-option", "unrecognized arguments"), KAFKA, is_table=True),
    ("user", "passwd"): Verb(
        "{name}",
        Refused(f"{NOT_THERE} --password-stdin", f"user {NOT_THERE} does not exist", FAILED),
        KAFKA,
        PASSWORD,
    ),
    ("user", "delete"): Verb(
        "{name}",
        Refused(f"{NOT_THERE} --yes", f"user {NOT_THERE} does not exist", FAILED),
        KAFKA,
        YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=f"user {NOT_THERE} does not exist",
    ),
    ("room", "create"): Verb(
        "{name}",
        Refused("{name} --max-events 0", "max_events", FAILED),
        HTTP,
        several="{long} {name}",
        failure="name",
    ),
    ("room", "publish"): Verb(
        "{name} 1", Refused("{name} 1 --metadata a", "--metadata takes KEY=VALUE, not 'a'"), HTTP
    ),
    ("room", "list"): Verb("", Refused("{name}", "unrecognized arguments"), HTTP, is_table=True),
    ("room", "describe"): Verb(
        "{name}",
        Refused(NOT_THERE, NOT_THERE, FAILED),
        HTTP,
        several=f"{NOT_THERE} {{name}}",
        failure=NOT_THERE,
    ),
    ("room", "history"): Verb("{name}", Refused("{name} --limit 0", "--limit"), HTTP),
    ("room", "tail"): Verb(
        "{name} --from-offset 0 --count 1", Refused("{name} --from-time soon", "--from-time: expected a time"), HTTP
    ),
    ("room", "delete"): Verb(
        "{name}",
        Refused("{name}", "add --yes"),
        HTTP,
        YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=NOT_THERE,
    ),
    ("schema", "register"): Verb(
        "{name} --file {folder}/schemas.json",
        Refused("{name} --file {folder}/lines.txt", "lines.txt is not JSON"),
        HTTP,
    ),
    ("schema", "list"): Verb(
        "",
        Refused("-o", "argument -o/--output"),
        HTTP,
        is_table=True,
        several=f"{NOT_THERE} {{name}}",
        failure=NOT_THERE,
    ),
    ("schema", "show"): Verb(
        "{name}",
        Refused("events-{name} --type no", "topic events-{name} has no event type no", FAILED),
        HTTP,
        several=f"{NOT_THERE} {{name}}",
        failure=NOT_THERE,
    ),
    ("schema", "check"): Verb(
        "{name} --file {folder}/schemas.json",
        Refused("{name} --file {folder}/none.json", "none.json: No such file"),
        HTTP,
    ),
    ("event", "publish"): Verb(
        "{name} --type counted 1", Refused("{name} one --type counted", "the payload is not JSON"), HTTP
    ),
    ("event", "list"): Verb(
        "{name}", Refused("{name} --limit 0", "--limit"), HTTP, several=f"{NOT_THERE} {{name}}", failure=NOT_THERE
    ),
    ("event", "tail"): Verb(
        "{name} --from oldest --count 1",
        Refused("{name} --from first", "--from: expected oldest, new, a number N or -N, got 'first'"),
        HTTP,
    ),
    ("event", "export"): Verb(
        "{name} --to {folder}/export",
        Refused("{name}", "the following arguments are required: --to"),
        HTTP,
        several=f"{NOT_THERE} {{name}} --to {{folder}}/export",
        failure=NOT_THERE,
    ),
    ("event", "verify"): Verb(
        "--dir {folder}/export",
        Refused("--dir {folder}/none", "none contains no events"),
        is_table=True,
        several=f"{NOT_THERE} {{name}} --dir {{folder}}/export",
        failure=NOT_THERE,
    ),
    ("event", "pack"): Verb(
        "--dir {folder}/export",
        Refused("--dir {folder}/export --before soon", "--before: not a date such as 2025-07-06: 'soon'"),
        several=f"{NOT_THERE} {{name}} --dir {{folder}}/export",
        failure=f"contains no events of topic {NOT_THERE}",
    ),
    ("event", "import"): Verb(
        "--from {folder}/export",
        Refused("--from {folder}/none", "none contains no events"),
        HTTP,
        several=f"{NOT_THERE} {{name}} --from {{folder}}/export",
        failure=NOT_THERE,
    ),
    ("webhook", "create"): Verb(
        "http://127.0.0.1:9/x {name}",
        Refused("ftp://127.0.0.1/ {name}", "url must start with https:// or http://", FAILED),
        HTTP,
    ),
    ("webhook", "list"): Verb("", Refused("{name}", "unrecognized arguments"), HTTP, is_table=True),
    ("webhook", "describe"): Verb("{webhook}", Refused("nobody", "nobody", FAILED), HTTP),
    ("webhook", "update"): Verb(
        "{webhook} --url http://127.0.0.1:9/y", Refused("{webhook}", "nothing to change"), HTTP
    ),
    ("webhook", "pause"): Verb("{webhook}", Refused("nobody", "nobody", FAILED), HTTP),
    ("webhook", "resume"): Verb("{webhook}", Refused("nobody", "nobody", FAILED), HTTP),
    ("webhook", "rotate"): Verb("{webhook}", Refused("{webhook} --overlap-hours x", "--overlap-hours"), HTTP),
    ("webhook", "deliveries"): Verb("{webhook}", Refused("{webhook} --limit x", "--limit"), HTTP),
    ("webhook", "dead"): Verb("{webhook}", Refused("{webhook} --limit x", "--limit"), HTTP),
    ("webhook", "resend"): Verb("{webhook} --dead", Refused("{webhook}", "--dead"), HTTP),
    ("webhook", "replay"): Verb("{webhook} --from-beginning", Refused("{webhook}", "--from-beginning"), HTTP),
    # Nobody listens at its URL.
    ("webhook", "test"): Verb("{webhook}", Refused("nobody", "nobody", FAILED), HTTP, code=FAILED),
    ("webhook", "delete"): Verb(
        "{webhook}",
        Refused("nobody --yes", "nobody", FAILED),
        HTTP,
        YES,
        several="nobody {webhook} --yes",
        failure="nobody",
    ),
    ("schema", "delete"): Verb(
        "{name}",
        Refused("{name}", "add --yes"),
        HTTP,
        YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=NOT_THERE,
    ),
    ("bench",): Verb("--records 1000 --seconds 2 --latency-records 10", Refused("--records 0", "--records"), KAFKA),
    ("cluster", "info"): Verb("", Refused("{name}", "unrecognized arguments"), HTTP),
    ("cluster", "health"): Verb("", Refused("{name}", "unrecognized arguments"), HTTP),
    ("doctor",): Verb("", Refused("{name}", "unrecognized arguments")),
    ("profile", "set"): Verb("{name} bootstrap.servers=127.0.0.1:1", Refused("{name} colour=blue", "colour")),
    ("profile", "list"): Verb("", Refused("{name}", "unrecognized arguments"), is_table=True),
    ("profile", "show"): Verb("{name}", Refused(NOT_THERE, f"profile {NOT_THERE} does not exist")),
    ("profile", "use"): Verb("{name}", Refused(NOT_THERE, f"profile {NOT_THERE} does not exist")),
    ("profile", "delete"): Verb(
        "{name}",
        Refused(f"{NOT_THERE} --yes", f"profile {NOT_THERE} does not exist", FAILED),
        typed=YES,
        several=f"{NOT_THERE} {{name}} --yes",
        failure=f"profile {NOT_THERE} does not exist",
    ),
    ("example", "chat"): Verb("--room {name}", Refused("{name}", "unrecognized arguments"), HTTP),
    ("example", "lobby"): Verb("", Refused("--room", "expected one argument"), HTTP),
    ("example", "monitoring"): Verb("--count 1", Refused("--every 0", "expected seconds, at least 0.1, got '0'"), HTTP),
    ("completion",): Verb("bash", Refused("tcsh", "'tcsh' is not a known SHELL: choose from bash, zsh, fish")),
    ("tls", "init"): Verb("--dir {folder}/tls localhost", Refused("--dir {folder}/tls", "required: HOST")),
    ("wire", "decode"): Verb(f"--hex {FRAME}", Refused("--hex xyz", "'xyz' is not hex")),
    ("acl", "add"): Verb(
        "--data-dir {folder}/stopped --principal User:a --topic a --allow read",
        Refused("--principal a --topic a --allow read", "User:"),
        KAFKA,
        is_table=True,
    ),
    ("acl", "list"): Verb("--data-dir {folder}/stopped", Refused("--principal a", "User:"), KAFKA, is_table=True),
    ("acl", "delete"): Verb(
        "--data-dir {folder}/stopped --topic a",
        Refused("--allow read --yes", "name the ACLs to delete with --principal"),
        KAFKA,
        YES,
    ),
    ("key", "create"): Verb(
        "--data-dir {folder}/stopped --scope a", Refused("--scope a --max-events x", "--max-events"), HTTP
    ),
    ("key", "list"): Verb(
        "--data-dir {folder}/stopped", Refused("{name}", "unrecognized arguments"), HTTP, is_table=True
    ),
    ("key", "alter"): Verb(
        "--data-dir {folder}/stopped {key} --max-events 5",
        Refused("{key}", "no limit is given: use --max-events"),
        HTTP,
    ),
    ("key", "rotate"): Verb(
        "--data-dir {folder}/stopped {key}", Refused("--data-dir {folder}/stopped nobody", "nobody", FAILED), HTTP
    ),
    ("key", "revoke"): Verb(
        "--data-dir {folder}/stopped {key}",
        Refused("--data-dir {folder}/stopped nobody --yes", "nobody", FAILED),
        HTTP,
        YES,
        several="--data-dir {folder}/stopped nobody {key} --yes",
        failure="nobody",
    ),
    ("serve",): Verb(
        "--kafka 127.0.0.1:0 --http 127.0.0.1:0 --data-dir {folder}/served",
        Refused("--set no.such.setting", "no.such.setting"),
    ),
    ("bridge",): Verb(
        "--upstream {bootstrap} --http 127.0.0.1:0 --data-dir {folder}/bridged",
        Refused("--upstream nowhere", "nowhere"),
    ),
}

# Verbs that start Spark: their calls are tried in tests/end_to_end/test_cli_jobs.py.
JOBS: dict[tuple[str, ...], Refused] = {
    ("pipeline", "lake"): Refused("--warehouse w --interval soon", "must be a number of seconds"),
    ("pipeline", "maintain"): Refused("--warehouse {folder}/none", "none does not exist"),
    ("pipeline", "analytics"): Refused(
        "--warehouse w --topic a --window 1m --slide 7s", "must be a multiple of --slide"
    ),
    ("pipeline", "replay"): Refused("--warehouse w --topic a --rate fast", "--rate"),
    ("example", "plot"): Refused("{folder}/none/a.png", "none does not exist"),
    ("pipeline", "reconcile"): Refused("--topic a", "the following arguments are required: --warehouse"),
}

# These take several words that belong to one thing: one server, one certificate, one profile, one webhook, one stream
# of records. The verb fails if one of them is wrong.
ONE_THING = {
    *{("log", "verify"), ("log", "adopt"), ("backup", "restore"), ("tls", "init"), ("profile", "set")},
    *{("webhook", "create"), ("webhook", "resend"), ("topic", "consume")},
    # The entities are filters.
    *{("quota", "list"), ("quota", "delete")},
}


def verbs_with_several_names() -> set[tuple[str, ...]]:
    """Return the verbs of the program that take several names."""
    return {
        verb
        for verb, parser in verbs_of_program().items()
        if any(not action.option_strings and action.nargs in ("+", "*") for action in parser._actions)
    } - ONE_THING
