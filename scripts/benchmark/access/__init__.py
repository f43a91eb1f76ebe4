"""The eighth family of works: the cost of authentication, ACLs and TLS. Run it with `scripts/bench access`.

Logins and ACLs are measured beside the same server without them, TLS beside Apache Kafka's TLS.
"""

FAMILY = "access"
