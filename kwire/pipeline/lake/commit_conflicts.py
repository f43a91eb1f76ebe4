"""Detects Iceberg commit conflicts. The second of two conflicting commits changes nothing and may be retried."""

# Iceberg's exceptions for a commit conflict. Errors of Spark and of Iceberg's procedures have them in their messages.
_EXCEPTIONS = ("ValidationException", "CommitFailedException")


def is_commit_conflict(error: Exception) -> bool:
    """Return whether a statement failed because of a conflict with a concurrent commit."""
    return any(name in str(error) for name in _EXCEPTIONS)
