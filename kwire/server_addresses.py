"""Where programs find a server, also Spark jobs: environment variables, defaults, the message if it is not there."""

BOOTSTRAP_VARIABLE, HTTP_VARIABLE = "KWIRE_BOOTSTRAP_SERVER", "KWIRE_HTTP"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
HTTP_DEFAULT = "http://127.0.0.1:8082"


def nothing_listens(address: str, option: str) -> str:
    """Return the message for a refused connection. It names the remedy."""
    return (
        f"nothing listens on {address}; start a server with scripts/serve or kwire serve, or name another with {option}"
    )
