"""The event API of tenants, /db, over HTTP."""
