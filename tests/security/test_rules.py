"""Decisions by ACLs, against a slow model of StandardAuthorizer, and the cases that its documentation names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType, UnreadableAcl, parse
from ketch.security.rules import Rules
from tests.security.model import Model

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY

# Few words, so that most ACLs meet: names are each other's prefixes.
NAMES = st.text("ab", min_size=1, max_size=4) | st.sampled_from(["*", "*a", "hardcode", "hard"])
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
ASKED = st.sampled_from([each for each in Operation if each > Operation.ALL])
TYPES = st.sampled_from([TOPIC, GROUP])
ACLS = st.builds(
    Acl,
    TYPES,
    st.sampled_from([LITERAL, PREFIXED]),
    NAMES,
    PRINCIPALS,
    HOSTS,
    st.sampled_from([each for each in Operation if each > Operation.ANY]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
SUPER = st.sampled_from([(), ("User:a",), ("Group:a", "User:b")])
CALLERS = st.sampled_from(["User:a", "User:b", "User:c", "Group:a"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2"])
Question = tuple[str, str, Operation, ResourceType]
QUESTIONS = st.tuples(CALLERS, ADDRESSES, ASKED, TYPES)


@given(st.builds(Model, st.lists(ACLS, max_size=12), SUPER, st.booleans()), QUESTIONS, NAMES)
def test_decisions_are_the_model_s(model: Model, question: Question, name: str) -> None:
    rules = Rules(model.acls, model.super_users, model.allow_if_none)
    assert rules.decide(*question, name).allowed == model.allowed(*question, name)


@given(st.builds(Model, st.lists(ACLS, max_size=8), SUPER, st.booleans()), QUESTIONS)
def test_any_resource_is_the_model_s(model: Model, question: Question) -> None:
    rules = Rules(model.acls, model.super_users, model.allow_if_none)
    assert rules.allows_any(*question) == model.allowed_somewhere(*question)


@given(ACLS)
def test_an_acl_is_read_as_it_was_written(acl: Acl) -> None:
    assert parse(acl.text) == acl


def acl(
    name: str = "t",
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    pattern: PatternType = LITERAL,
    principal: str = "User:a",
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, pattern, name, principal, host, operation, permission)


def may(rules: Rules, operation: Operation = Operation.READ, name: str = "t", host: str = "10.0.0.1") -> bool:
    return rules.decide("User:a", host, operation, TOPIC, name).allowed


def test_deny_comes_first() -> None:
    assert not may(Rules([acl(), acl("*", permission=DENY)]))
    assert not may(Rules([acl("*"), acl("t", permission=DENY)]))
    assert not may(Rules([acl(), acl("t", Operation.ALL, DENY, PREFIXED)]))


def test_a_deny_implies_nothing_and_an_allow_implies_describe() -> None:
    rules = Rules([acl(), acl("t", Operation.WRITE, DENY)])
    assert may(rules, Operation.DESCRIBE)
    assert not may(rules, Operation.WRITE)
    assert not may(rules, Operation.DESCRIBE_CONFIGS)
    assert may(Rules([acl("t", Operation.ALTER_CONFIGS)]), Operation.DESCRIBE_CONFIGS)


def test_everyone_is_let_in_only_where_no_acl_at_all_is_about_the_resource() -> None:
    assert may(Rules([], allow_if_none=True))
    assert may(Rules([acl("u")], allow_if_none=True))
    assert not may(Rules([acl(principal="User:b")], allow_if_none=True))
    assert not may(Rules([acl("", pattern=PREFIXED)._replace(name="t", principal="User:b")], allow_if_none=True))
    assert not may(Rules([acl("*", principal="User:b")], allow_if_none=True))


def test_nobody_but_a_super_user_is_let_in_before_the_acls_are_known() -> None:
    assert not may(Rules(None, allow_if_none=True))
    assert may(Rules(None, ["User:a"]))


@pytest.mark.parametrize(
    ("written", "calling"),
    [("::1", "0:0:0:0:0:0:0:1"), ("0:0:0:0:0:0:0:1", "::1"), ("10.0.0.1", "::ffff:10.0.0.1"), ("fe80::1%eth0",) * 2],
)
def test_hosts_are_compared_as_addresses(written: str, calling: str) -> None:
    assert not may(Rules([acl(), acl(permission=DENY, host=written)]), host=calling)
    assert may(Rules([acl(), acl(permission=DENY, host=written)]), host="10.0.0.9")


def test_the_rule_that_decided_is_named_in_kafka_s_words() -> None:
    found = Rules([acl()]).decide("User:a", "10.0.0.1", Operation.READ, TOPIC, "t")
    assert found.rule == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, patternType=LITERAL, resourceName=t, principal=User:a,"
        " host=*, operation=READ, permissionType=ALLOW))"
    )
    assert Rules([]).decide("User:a", "h", Operation.READ, TOPIC, "t").rule == "DefaultDeny"
    assert Rules([], ["User:a"]).decide("User:a", "h", Operation.READ, TOPIC, "t").rule == "SuperUser"


# -- filters (ResourcePatternFilter.matches, AccessControlEntryFilter.matches)

FOUND = [acl("a"), acl("ab", pattern=PREFIXED), acl("abc"), acl("*"), acl("b", Operation.ALL, DENY, principal="User:b")]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter(), ["*", "a", "ab", "abc", "b"]),
        (Filter(name="abc"), ["abc"]),
        (Filter(name="abc", pattern=PatternType.MATCH), ["*", "ab", "abc"]),
        (Filter(name="abc", pattern=PREFIXED), []),
        (Filter(name="ab", pattern=PREFIXED), ["ab"]),
        (Filter(pattern=PREFIXED), ["ab"]),
        (Filter(pattern=PatternType.MATCH), ["*", "a", "ab", "abc", "b"]),
        (Filter(name="*"), ["*"]),
        (Filter(principal="User:b"), ["b"]),
        (Filter(permission=DENY), ["b"]),
        (Filter(operation=Operation.READ), ["*", "a", "ab", "abc"]),
        (Filter(host="10.0.0.1"), []),
        (Filter(resource=GROUP), []),
    ],
)
def test_a_filter_chooses_as_kafka_s(wanted: Filter, names: list[str]) -> None:
    assert sorted(each.name for each in Rules(FOUND).chosen(wanted)) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"TOPIC"',
        json.dumps(["TOPIC", "LITERAL", "t", "User:a", "*", "READ"]),
        json.dumps(["TOPIC", "LITERAL", "t", "User:a", "*", "LOOK", "ALLOW"]),
        json.dumps(["TOPIC", "MATCH", "t", "User:a", "*", "READ", "ALLOW"]),
        json.dumps(["ANY", "LITERAL", "t", "User:a", "*", "READ", "ALLOW"]),
        json.dumps(["TOPIC", "LITERAL", "", "User:a", "*", "READ", "ALLOW"]),
        json.dumps(["TOPIC", "LITERAL", 5, "User:a", "*", "READ", "ALLOW"]),
        json.dumps(["TOPIC", "LITERAL", "t", "User:a", "*", "READ", ["ALLOW"]]),
    ],
)
def test_what_is_no_acl_is_refused(text: str) -> None:
    with pytest.raises(UnreadableAcl):
        parse(text)
