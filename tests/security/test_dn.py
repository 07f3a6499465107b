"""Distinguished names as Java writes them, and Kafka's rules that make a user's name of one."""

from __future__ import annotations

import contextlib
import datetime
import string

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ketch.security.dn import NoMatchingRule, PrincipalRules, subject

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
DAY = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def der(name: x509.Name) -> bytes:
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(ISSUER).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(DAY).not_valid_after(DAY)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def name(*pairs: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value, _validate=False) for kind, value in pairs])


ALICE = der(name((NameOID.COMMON_NAME, "alice")))


# What java.security.cert.X509Certificate.getSubjectX500Principal().getName() says of the same bytes.
@pytest.mark.parametrize(
    ("made", "written"),
    [
        (name((NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Acme"), (NameOID.COMMON_NAME, "alice")),
         "CN=alice,O=Acme,C=DE"),
        (name((NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "u1")), "UID=u1,DC=example"),
        (name((NameOID.STATE_OR_PROVINCE_NAME, "BW"), (NameOID.LOCALITY_NAME, "S"), (NameOID.STREET_ADDRESS, "x 1")),
         "STREET=x 1,L=S,ST=BW"),
        (name((NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        (name((NameOID.COMMON_NAME, "  a b ")), "CN=\\ \\ a b\\ "),
        (name((NameOID.COMMON_NAME, "Jürgen 東")), "CN=Jürgen 東"),
        (name((NameOID.EMAIL_ADDRESS, "a@b")), "1.2.840.113549.1.9.1=#1603614062"),
        (name((NameOID.TITLE, "Dr")), "2.5.4.12=#0c024472"),
        (x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                                                    x509.NameAttribute(NameOID.USER_ID, "b")])]), None),
        (x509.Name([]), ""),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_in_java(made: x509.Name, written: str | None) -> None:
    found = subject(der(made))
    assert found == written if written is not None else found in ("CN=a+UID=b", "UID=b+CN=a")


PLAIN = st.text(string.ascii_letters + string.digits + " .-äß", min_size=1, max_size=64)
KINDS = st.sampled_from(
    [NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.LOCALITY_NAME]
)


@given(st.lists(st.tuples(KINDS, PLAIN.filter(lambda text: text.strip() == text)), min_size=1, max_size=6))
def test_what_needs_no_escape_is_as_rfc_4514_has_it(pairs: list[tuple[x509.ObjectIdentifier, str]]) -> None:
    made = name(*pairs)
    assert subject(der(made)) == made.rfc4514_string()


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_every_value_can_be_read_back(text: str) -> None:
    made = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text, _ASN1Type.UTF8String, _validate=False)])
    written = subject(der(made)).removeprefix("CN=")
    read, rest = [], iter(written.replace("\\00", "\0"))
    for c in rest:
        read.append(next(rest) if c == "\\" else c)
    assert "".join(read) == text


@given(st.binary(max_size=200))
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"certificate|unpack|subject"):
        subject(data)


@given(st.data())
def test_a_damaged_certificate_ends_in_a_value_error_or_a_name(data: st.DataObject) -> None:
    whole = bytearray(ALICE)
    changes = st.tuples(st.integers(0, 250), st.integers(0, 255))
    for at, byte in data.draw(st.lists(changes, min_size=1, max_size=4)):
        whole[at] = byte
    cut = data.draw(st.integers(len(whole) // 2, len(whole)))
    with contextlib.suppress(ValueError):
        assert isinstance(subject(bytes(whole[:cut])), str)


# Cases of Kafka's SslPrincipalMapperTest
DN = "CN=Duke, OU=ServiceUsers, O=Org, C=US"
FOUR = ", ".join(
    [
        "RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?), OU=(.*?), O=(.*?), L=(.*?), ST=(.*?), C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?), ou=(.*?), dc=(.*?), dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("distinguished", "user"),
    [
        ("CN=Duke, OU=ServiceUsers, O=Org, C=US", "duke"),
        ("CN=Duke, OU=SME, O=mycp, L=Fulton, ST=MD, C=US", "duke@sme"),
        ("cn=duke, ou=sme, dc=mycp, dc=com", "DUKE@SME"),
        ("cN=duke, OU=JavaSoft, O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft, O=Sun Microsystems, C=US", "OU=JavaSoft, O=Sun Microsystems, C=US"),
    ],
)
def test_rules(distinguished: str, user: str) -> None:
    assert PrincipalRules(FOUR).name(distinguished) == user


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", DN),
        ("RULE:^CN=(.*?),(.*)$/$1/", "Duke"),
        ("RULE:^CN=(.*?),(.*)$/\\/$1\\$1/U", "/DUKE$1"),
        ("RULE:^CN=(.*?),(.*)$/$12/", "Duke2"),
        ("RULE:^CN=(.*?),(.*)$/$3@$1/", "$3@Duke"),
        ("RULE:^CN=(.*?),(.*)$/$0/", DN),
        ("RULE:CN=nobody/x/,DEFAULT", DN),
        (",  , RULE:.*/all/U ,, DEFAULT, ", "ALLALL"),  # of the empty rest the pattern is true once more, as in Java
    ],
)
def test_what_a_replacement_may_hold(rules: str, user: str) -> None:
    assert PrincipalRules(rules).name(DN) == user


def test_no_rule_applies() -> None:
    with pytest.raises(NoMatchingRule, match="No rules apply to CN=Duke"):
        PrincipalRules("RULE:CN=nobody/x/").name(DN)


@pytest.mark.parametrize(
    "rules",
    [
        *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/U", "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/"),
        *("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U", "RULE:^CN=(.*?)$/LU"),
        "RULE:(/x/",
    ],
)
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule"):
        PrincipalRules(rules)
