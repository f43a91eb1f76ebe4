"""Commits that met another one: whoever comes second has changed nothing and may try again on what is there now."""

# How Iceberg says so, on its own or inside what Spark or its own actions say.
_SIGNS = ("ValidationException", "CommitFailedException")


def is_conflict(error: Exception) -> bool:
    """Whether a statement failed for this reason alone."""
    return any(sign in str(error) for sign in _SIGNS)
