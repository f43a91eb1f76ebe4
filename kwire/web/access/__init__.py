"""Routes about the identity of the client."""
