"""kwire example: run an example, each with one command."""

from kwire.cli.framework.parser import CommandParser, Entry

VERBS = {
    "chat": Entry("a chat in the browser", "kwire.cli.example.pages", "add_chat"),
    "lobby": Entry(
        "a game lobby in the browser, whose state is the history of a room", "kwire.cli.example.pages", "add_lobby"
    ),
    "monitoring": Entry(
        "report the load of this machine to a room, and draw it in the browser", "kwire.cli.example.monitoring"
    ),
    "plot": Entry("count events with Spark and draw the results as a picture", "kwire.cli.example.plot"),
}


def add(parser: CommandParser) -> None:
    parser.add_verbs(VERBS)
