"""Who sends a request, and what that principal may do: principals, users, ACLs, the authorizer, SASL, TLS and audit."""
