"""Names from certificates: a subject as Java writes it, and the rules that make a user's name of it.

Pure: bytes and text in, text out. Kafka's `ssl.principal.mapping.rules` are written against the subject in the form of
Java's X500Principal.getName(), RFC 2253 with some details of its own (sun.security.x509.AVA.toRFC2253String). The rules
are those of Kafka's SslPrincipalMapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

# Attribute types that RFC 2253 names; any other is written as its number, its value in hexadecimal.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# ASN.1's tags: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString
_STRINGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
_VERSION, _SEQUENCE, _SET, _OID = 0xA0, 0x30, 0x31, 0x06
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANK = " \r"


class NoMatchingRule(ValueError):
    """No rule applies to a name."""


# -- the subject of a certificate


def subject(certificate: bytes) -> str:
    """The subject's distinguished name.

    Args:
        certificate: X.509, in DER.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        return _subject(certificate)
    except (IndexError, StopIteration):
        raise ValueError("the certificate is cut short") from None


def _subject(certificate: bytes) -> str:
    fields = _elements(next(_elements(next(_elements(certificate)).content)).content)
    first = next(fields)
    before = 4 if first.tag == _VERSION else 3  # serial number, algorithm, issuer, validity
    for _ in range(before):
        next(fields)
    name = next(fields)
    if name.tag != _SEQUENCE:
        raise ValueError("the certificate has no subject")
    return ",".join(reversed([_relative(each) for each in _elements(name.content)]))


class _Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def _elements(data: bytes) -> Iterator[_Element]:
    """The DER elements in a row."""
    at = 0
    while at < len(data):
        tag, size, begin = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, begin = int.from_bytes(data[begin : begin + count]), begin + count
        if begin + size > len(data):
            raise ValueError("the certificate is cut short")
        yield _Element(tag, data[begin : begin + size], data[at : begin + size])
        at = begin + size


def _relative(element: _Element) -> str:
    if element.tag != _SET:
        raise ValueError("the certificate's subject is not a name")
    return "+".join(_attribute(each) for each in _elements(element.content))


def _attribute(element: _Element) -> str:
    kind, value = _elements(element.content)
    oid = _dotted(kind.content)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    written = "".join("\\" + c if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    inner = written.strip(_BLANK)
    lead = len(written) - len(written.lstrip(_BLANK))
    blanks = written[:lead], written[lead + len(inner) :]
    before, behind = ("".join("\\" + c for c in each) for each in blanks)
    return before + inner + behind


# -- the rules

# As in Kafka: DEFAULT; RULE:pattern/replacement/ and perhaps L or U; anything else is looked at once it stands alone
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|(\$)", re.DOTALL)


class _Rule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(lambda match: _filled(self.replacement, match), name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


class PrincipalRules:
    """`ssl.principal.mapping.rules`: the first rule that applies makes the name.

    Raises:
        ValueError: with what Kafka says of a rule that is none.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules = [rule for each in _SPLITTER.finditer(text.strip()) if (rule := _rule(each[1])) is not None]

    def name(self, distinguished_name: str) -> str:
        """The user's name.

        Raises:
            NoMatchingRule: none applies.
        """
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"No rules apply to {distinguished_name}, rules {self._text}")


@lru_cache(64)
def rules(text: str) -> PrincipalRules:
    """The rules of a listener, read once. Raises ValueError as `PrincipalRules`."""
    return PrincipalRules(text)


def _rule(text: str) -> _Rule | None:
    """None for an empty one, which Kafka passes over."""
    found = _PARSER.match(text)
    assert found is not None  # it may match nothing, but it does match
    if found.end() < len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    if found[1] is not None:
        return _Rule(None, "", "")
    if found[2] is None:
        return None
    try:
        return _Rule(re.compile(found[2]), found[3], found[4])
    except re.error as error:
        raise ValueError(f"Invalid rule: `{text}`, its pattern is no regular expression: {error}") from None


def _filled(replacement: str, match: re.Match[str]) -> str:
    """The replacement with its references, by the rules of Java's Matcher.replaceAll; one to no group stays."""
    return _REFERENCE.sub(lambda reference: _referred(reference, match), replacement)


def _referred(reference: re.Match[str], match: re.Match[str]) -> str:
    escaped, digits, name, _ = reference.groups()
    if escaped is not None:
        return escaped
    if name is not None and name in match.groupdict():
        return match[name] or ""
    if digits is None:
        return reference[0]
    used = len(digits)
    while used > 1 and int(digits[:used]) > len(match.groups()):  # of $12 with one group the 2 is text
        used -= 1
    number = int(digits[:used])
    return reference[0] if number > len(match.groups()) else (match[number] or "") + digits[used:]
