"""Cipher suites: IANA names, which Kafka's `ssl.cipher.suites` uses, and OpenSSL's names for them."""

from collections.abc import Sequence
from typing import NamedTuple

# Python can turn these on and off only together with TLS 1.3.
TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
# Suites of TLS 1.2 that OpenSSL offers by default. All of them use ephemeral keys (forward secrecy).
OPENSSL_NAMES = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}


class SuiteSelection(NamedTuple):
    """The allowed suites: OpenSSL's cipher list for TLS 1.2, and whether TLS 1.3 is allowed."""

    tls12_list: str
    has_tls13: bool


def select_suites(names: Sequence[str]) -> SuiteSelection:
    """Return the selection for a list of names. Raises ValueError for names that are unknown or cannot be selected."""
    tls13 = TLS13_SUITES.intersection(names)
    if tls13 and tls13 != TLS13_SUITES:
        raise ValueError(
            f"the suites of TLS 1.3 can be allowed only together; also name {', '.join(sorted(TLS13_SUITES - tls13))}, "
            "or none of them"
        )
    openssl = []
    known = frozenset(OPENSSL_NAMES.values())
    for name in names:
        if name not in TLS13_SUITES:
            translated = OPENSSL_NAMES.get(name, name)
            if translated not in known:
                raise ValueError(
                    f"the cipher suite {name} is not supported; supported are {', '.join(sorted(TLS13_SUITES))}, "
                    f"{', '.join(OPENSSL_NAMES)}"
                )
            openssl.append(translated)
    return SuiteSelection(":".join(openssl), bool(tls13))
