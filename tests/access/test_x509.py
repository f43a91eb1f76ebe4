"""The subject of a certificate has the text of Java's X500Principal.getName(), and its end of validity is read."""

import datetime
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from kwire.access.certificates.x509 import not_after, subject_name

Parts = list[list[tuple[x509.ObjectIdentifier, str]]]
UNKNOWN = x509.ObjectIdentifier("1.2.3.4.99999")
BUSINESS = x509.ObjectIdentifier("2.5.4.15")

# What Java 17 prints for these subjects; test_java_prints_the_same_names holds the two together.
NAMES: list[tuple[Parts, str]] = [
    ([[(NameOID.COUNTRY_NAME, "DE")], [(NameOID.ORGANIZATION_NAME, "Org")], [(NameOID.COMMON_NAME, "alice")]],
     "CN=alice,O=Org,C=DE"),
    ([[(NameOID.COMMON_NAME, 'a,b=c+d<e>f#g;h"i\\j')]], 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
    ([[(NameOID.COMMON_NAME, "  two spaces  ")]], "CN=\\ \\ two spaces\\ \\ "),
    ([[(NameOID.COMMON_NAME, "   ")]], "CN=\\ \\ \\ "),
    ([[(NameOID.COMMON_NAME, "Jürgen 中 \U0001f600")]], "CN=Jürgen 中 \U0001f600"),
    ([[(NameOID.COMMON_NAME, "x"), (NameOID.USER_ID, "7")], [(NameOID.DOMAIN_COMPONENT, "example")]],
     "DC=example,CN=x+UID=7"),
    ([[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(NameOID.COMMON_NAME, "x")]],
     "CN=x,1.2.840.113549.1.9.1=#160561406 22e63".replace(" ", "")),
    ([[(UNKNOWN, "v")], [(BUSINESS, "b")]], "2.5.4.15=#0c0162,1.2.3.4.99999=#0c0176"),
    ([[(NameOID.STATE_OR_PROVINCE_NAME, "S")], [(NameOID.LOCALITY_NAME, "L")], [(NameOID.STREET_ADDRESS, "1")],
      [(NameOID.ORGANIZATIONAL_UNIT_NAME, "U")], [(NameOID.SERIAL_NUMBER, "9")]],
     "2.5.4.5=#130139,OU=U,STREET=1,L=L,ST=S"),
    ([[(NameOID.COMMON_NAME, "nul\0inside")]], "CN=nul\\00inside"),
]  # fmt: skip


def certificate(parts: Parts, end: datetime.datetime | None = None) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        x509.RelativeDistinguishedName(
            x509.NameAttribute(kind, text, _validate=False, _type=_type_of(kind)) for kind, text in rdn
        )
        for rdn in parts
    )
    start = datetime.datetime(2020, 1, 1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(end or datetime.datetime(2040, 1, 1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def _type_of(kind: x509.ObjectIdentifier) -> _ASN1Type | None:
    special = {NameOID.EMAIL_ADDRESS: _ASN1Type.IA5String, NameOID.SERIAL_NUMBER: _ASN1Type.PrintableString}
    return special.get(kind, _ASN1Type.UTF8String)


@pytest.mark.parametrize(("parts", "text"), NAMES)
def test_a_subject_is_written_as_java_writes_it(parts: Parts, text: str) -> None:
    assert subject_name(certificate(parts)) == text


@pytest.mark.needs_java
def test_java_prints_the_same_names(tmp_path: Path) -> None:
    for number, (parts, _) in enumerate(NAMES):
        (tmp_path / f"{number}.der").write_bytes(certificate(parts))
    program = tmp_path / "Names.java"
    program.write_text(
        """
        import java.io.*; import java.nio.charset.*; import java.security.cert.*;
        public class Names {
            public static void main(String[] files) throws Exception {
                PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
                for (String file : files)
                    out.println(((X509Certificate) CertificateFactory.getInstance("X.509")
                        .generateCertificate(new FileInputStream(file))).getSubjectX500Principal().getName());
            }
        }
        """
    )
    files = [str(tmp_path / f"{number}.der") for number in range(len(NAMES))]
    done = subprocess.run(["java", str(program), *files], capture_output=True, timeout=100, check=True)
    assert done.stdout.decode().split("\n")[:-1] == [text for _, text in NAMES]


@pytest.mark.parametrize("year", [2040, 2049, 2050, 2199])
def test_the_end_of_validity_is_read(year: int) -> None:
    end = datetime.datetime(year, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    assert not_after(certificate(NAMES[0][0], end.replace(tzinfo=None))) == end.timestamp()


def test_every_cut_of_a_certificate_is_refused() -> None:
    whole = certificate(NAMES[0][0])
    for length in range(len(whole)):
        with pytest.raises(ValueError):  # noqa: PT011
            subject_name(whole[:length])
