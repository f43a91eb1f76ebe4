"""Where webhooks may go, by URL and by address."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.server.outbound.address_rules import AddressRules, ForbiddenTarget, Target, parse_url, refusal
from tests.server.forbidden_targets import LITERALS, TRICKS

STRICT = AddressRules()
# Only the address decides.
BY_ADDRESS = AddressRules(is_http_allowed=True, ports=None)
OWN_NETWORK = AddressRules(is_private_allowed=True)


@pytest.mark.parametrize("url", [*LITERALS, *TRICKS])
def test_forbidden_urls_are_told_without_looking_anything_up(url: str) -> None:
    for rules in (STRICT, BY_ADDRESS):
        with pytest.raises(ForbiddenTarget):
            rules.check_url(url.replace("{port}", "8080"))


def test_the_plain_form_is_taken_apart() -> None:
    assert parse_url("https://Example.COM/a%20b?c=d&e") == Target("https", "example.com", 443, "/a%20b?c=d&e")
    assert parse_url("http://example.com.:8080") == Target("http", "example.com", 8080, "/")
    assert parse_url("https://example.com?x") == Target("https", "example.com", 443, "/?x")
    assert parse_url("https://[2606:4700::1111]:8443/") == Target("https", "2606:4700::1111", 8443, "/")
    assert parse_url("https://xn--bcher-kva.example/").host == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]:8443/",
        "https://a-b.example.org:443/",
    ],
)
def test_public_https_is_allowed(url: str) -> None:
    STRICT.check_url(url)


def test_http_has_to_be_allowed() -> None:
    with pytest.raises(ForbiddenTarget, match="only https"):
        STRICT.check_url("http://example.com/")
    AddressRules(is_http_allowed=True).check_url("http://example.com/")


@pytest.mark.parametrize("port", [1, 22, 25, 6379, 9092, 9200, 11211, 65535])
def test_ports_are_those_that_are_listed(port: int) -> None:
    with pytest.raises(ForbiddenTarget, match=rf"the port {port}"):
        STRICT.check_url(f"https://example.com:{port}/")
    STRICT._replace(ports=frozenset({port})).check_url(f"https://example.com:{port}/")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:5000/", "http://localhost:5000/", "http://[::1]:5000/", "http://10.0.0.1/", "http://web:3000/",
            "http://192.168.1.1/", "http://[fd12::1]/", "http://100.64.0.1/", "http://[::ffff:10.0.0.1]/", "http://a.internal/"]
)  # fmt: skip
def test_the_own_network_can_be_opened(url: str) -> None:
    OWN_NETWORK.check_url(url)


@pytest.mark.parametrize(
    "text", ["169.254.169.254", "169.254.1.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
             "fd20:ce::254", "fd00:42::42", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255",
             "240.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "2002:a00:1::"]
)  # fmt: skip
def test_some_places_stay_closed_whatever_is_opened(text: str) -> None:
    with pytest.raises(ForbiddenTarget):
        OWN_NETWORK.check_address(ip_address(text))


@pytest.mark.parametrize(
    "host", ["metadata.google.internal", "Metadata.Google.Internal.", "metadata", "metadata.goog", "instance-data",
             "instance-data.ec2.internal", "metadata.tencentyun.com", "api.metadata.cloud.ibm.com",
             "metadata.azure.internal"]
)  # fmt: skip
def test_names_of_metadata_services_stay_closed_whatever_is_opened(host: str) -> None:
    for rules in (STRICT, BY_ADDRESS, OWN_NETWORK):
        with pytest.raises(ForbiddenTarget):
            rules.check_url(f"https://{host}/latest/meta-data/")
    with pytest.raises(ForbiddenTarget, match="metadata service"):
        OWN_NETWORK.check_url(f"http://{host}:5000/")


def test_other_names_of_the_own_network_are_opened() -> None:
    for host in ("metadata-store", "my.metadata", "hooks.internal", "instance-data.example.com"):
        OWN_NETWORK.check_url(f"http://{host}:5000/")


@given(st.ip_addresses(v=4))
def test_a_public_address_is_one_that_python_calls_global_too(address: IPv4Address) -> None:
    """Not the other way round: some global addresses are those of protocols, or of a cloud."""
    if refusal(address, is_private_allowed=False) is None:
        assert address.is_global


@given(st.ip_addresses(v=6))
def test_a_public_address_of_ipv6_is_global_unicast(address: IPv6Address) -> None:
    if refusal(address, is_private_allowed=False) is None:
        assert address.is_global
        assert address.packed[0] >> 5 == 1


@given(st.ip_addresses(v=4), st.booleans())
def test_a_mapped_address_is_never_better_than_what_it_maps(address: IPv4Address, is_private_allowed: bool) -> None:
    mapped = IPv6Address(f"::ffff:{address}")
    assert refusal(mapped, is_private_allowed=False) is not None
    own = refusal(address, is_private_allowed=is_private_allowed)
    if own is not None:
        assert refusal(mapped, is_private_allowed=is_private_allowed) is not None


@given(st.text(max_size=100))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"https://{text}/", f"https://example.com/{text}"):
        try:
            target = BY_ADDRESS.check_url(url)
        except ForbiddenTarget:
            continue
        assert target.host
        assert target.host.isascii()
        assert target.path.isprintable()
        assert " " not in target.path


def test_a_name_is_as_bad_as_its_worst_address() -> None:
    assert STRICT.check_addresses(["8.8.8.8", "8.8.8.8", "2606:4700::1111"]) == ["8.8.8.8", "2606:4700::1111"]
    for bad in (["8.8.8.8", "127.0.0.1"], [], ["x"]):
        with pytest.raises(ForbiddenTarget):
            STRICT.check_addresses(bad)
