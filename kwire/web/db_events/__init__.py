"""The event API of tenants, `/db/…`: publish and subscribe with an API key, within the key's scope and limits."""
