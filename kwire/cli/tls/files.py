"""Makes a CA and certificates for development."""

import datetime
import ipaddress
import re
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of other machines may be behind this one.
CLOCK_DIFFERENCE = datetime.timedelta(hours=1)
# A common name has at most 64 characters (RFC 5280).
COMMON_NAME_MAX = 64
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")


def make_certificates(hosts: Sequence[str], client_name: str, days: int) -> dict[str, bytes]:
    """Return the contents of ca.pem, ca-key.pem, server.pem and client.pem. Raises ValueError for a bad host or name.

    The keys are on the curve P-256: a handshake with them takes a tenth of the time of one with RSA.
    """
    names = [_alternative_name(host) for host in hosts]
    if not 1 <= len(client_name) <= COMMON_NAME_MAX:
        raise ValueError(f"the client's name must have 1 to {COMMON_NAME_MAX} characters")
    now = datetime.datetime.now(datetime.UTC)
    start, end = now - CLOCK_DIFFERENCE, now + datetime.timedelta(days=days)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("kwire development CA")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )

    def issue(name: str, usage: x509.ObjectIdentifier, alternatives: Sequence[x509.GeneralName]) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), ca_name, key.public_key(), start, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(ca_key, hashes.SHA256())
        return _key_text(key) + certificate.public_bytes(Encoding.PEM)

    return {
        "ca.pem": ca.public_bytes(Encoding.PEM),
        "ca-key.pem": _key_text(ca_key),
        "server.pem": issue(hosts[0][:COMMON_NAME_MAX], ExtendedKeyUsageOID.SERVER_AUTH, names),
        "client.pem": issue(client_name, ExtendedKeyUsageOID.CLIENT_AUTH, ()),
    }


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host} is not a host name or an address; name hosts without a port")
    return x509.DNSName(host)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
