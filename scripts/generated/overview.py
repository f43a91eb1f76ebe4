"""Generates docs/pictures/overview.svg, the picture of README.md."""

from generated.svg import AMBER, BLUE, GREEN, GREY, PAPER, Picture

WIDTH, HEIGHT = 860, 340


def render() -> str:
    picture = Picture(WIDTH, HEIGHT, "Kafka clients and HTTP clients use the same logs of one kwire server")
    _clients(picture)
    _server(picture)
    _outputs(picture)
    return picture.render()


def _clients(picture: Picture) -> None:
    picture.box(20, 40, 190, 92, BLUE)
    picture.lines(115, 64, "Kafka clients", "Java, librdkafka, Python,", "kcat, Kafka's tools,", "Spark, Kafka Streams")
    picture.box(20, 156, 190, 92, GREEN)
    picture.lines(115, 180, "Browsers and scripts", "HTTP, WebSocket,", "Server-Sent Events,", "Python and JavaScript")
    picture.box(20, 272, 190, 44, GREY)
    picture.lines(115, 291, "Prometheus", "/metrics, /readyz")
    picture.arrow(214, 86, 272, 86, both_ways=True)
    picture.arrow(214, 202, 272, 202, both_ways=True)
    picture.arrow(214, 294, 272, 294)
    picture.text(243, 78, "9092", size=11)
    picture.text(243, 194, "8082", size=11)


def _server(picture: Picture) -> None:
    picture.box(276, 24, 320, 300, GREY)
    picture.text(436, 48, "kwire: one process, one folder of data", bold=True)
    for left, colour, lines in (
        (290, BLUE, ("topics", "partitions,", "groups,", "transactions")),
        (390, GREEN, ("rooms", "live events", "for many,", "with history")),
        (490, AMBER, ("event store", "JSON Schemas,", "versions, one", "global order")),
    ):
        picture.box(left, 64, 92, 104, colour)
        picture.lines(left + 46, 88, *lines)
        picture.arrow(left + 46, 170, left + 46, 194)
    picture.box(290, 198, 292, 58, PAPER)
    picture.lines(436, 222, "the log", "Kafka's record batches, in segment files")
    picture.box(290, 268, 292, 42, PAPER)
    picture.lines(436, 286, "users, ACLs, API keys, tenants, quotas, audit", "the same on both ports")


def _outputs(picture: Picture) -> None:
    for top, lines in (
        (40, ("Webhooks", "signed requests to URLs,", "retried, with dead letters")),
        (138, ("Tables in a lake", "Spark jobs write Iceberg", "or Parquet, each event once")),
        (236, ("Backups, event files", "copies of a running server,", "a JSON file for each event")),
    ):
        picture.box(656, top, 184, 80, GREY)
        picture.lines(748, top + 26, *lines)
        picture.arrow(600, top + 40, 652, top + 40)
