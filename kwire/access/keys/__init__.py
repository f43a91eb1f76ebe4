"""API keys: credentials of tenants and of administrators' programs, with limits, expiry, rotation and revocation."""
