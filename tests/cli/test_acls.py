"""`ketch acls` as a user runs it: by a broker, and straight in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ketch.security.acls import CLUSTER_NAME, Operation, ResourceType
from tests.support.acls import KEY, ON, allow
from tests.support.cli import Done, Ketch, environment, in_process
from tests.support.ketch import KetchServer, eventually

Run = Callable[..., Done]
WHERE = ("by a broker", "in Redis")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A broker with an authorizer that lets the tests change ACLs."""
    server = KetchServer(tmp_path_factory.mktemp("guarded"), *ON, "--super-users", "User:ANONYMOUS").start()
    yield server
    server.stop()


@pytest.fixture(params=WHERE)
def acls(guarded: KetchServer, request: pytest.FixtureRequest) -> Run:
    """`acls("list", code=0)`, with no ACLs at first."""
    guarded.redis().delete(KEY)
    redis = ("--redis", guarded.redis_url) if request.param == WHERE[1] else ()

    def run(command: str, *arguments: str, **given: int) -> Done:
        return partial(Ketch(guarded), "acls")(command, *redis, *arguments, **given)

    return run


def rows(done: Done) -> list[list[str]]:
    return sorted(line.split("\t") for line in done.stdout.decode().splitlines())


def test_what_is_added_is_listed_and_removed(acls: Run) -> None:
    who = ("--allow-principal", "User:a", "--allow-principal", "User:b", "--deny-principal", "User:c")
    added = rows(acls("add", *who, "--deny-host", "10.0.0.1", "--operation", "describe-configs", "--topic", "t"))
    assert added == [
        ["User:a", "*", "ALLOW", "DESCRIBE_CONFIGS", "TOPIC", "LITERAL", "t"],
        ["User:b", "*", "ALLOW", "DESCRIBE_CONFIGS", "TOPIC", "LITERAL", "t"],
        ["User:c", "10.0.0.1", "DENY", "DESCRIBE_CONFIGS", "TOPIC", "LITERAL", "t"],
    ]
    assert rows(acls("list")) == added
    assert rows(acls("list", "--principal", "User:b")) == added[1:2]
    gone = acls("remove", "--topic", "t", "--allow-principal", "User:a", "--operation", "DescribeConfigs", "--yes")
    assert rows(gone) == added[:1]
    assert rows(acls("remove", "--topic", "t", "--force")) == added[1:]
    assert rows(acls("list")) == []


def test_clients_are_given_what_kafka_s_tool_gives_them(acls: Run) -> None:
    acls("add", "--allow-principal", "User:p", "--producer", "--topic", "t", "--transactional-id", "x", "--idempotent")
    acls("add", "--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert {(each[0], each[3], each[4], each[6]) for each in rows(acls("list"))} == {
        *(("User:p", operation, "TOPIC", "t") for operation in ("WRITE", "DESCRIBE", "CREATE")),
        *(("User:p", operation, "TRANSACTIONAL_ID", "x") for operation in ("WRITE", "DESCRIBE")),
        ("User:p", "IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster"),
        *(("User:c", operation, "TOPIC", "t") for operation in ("READ", "DESCRIBE")),
        ("User:c", "READ", "GROUP", "g"),
    }


def test_patterns_are_chosen_as_filters_say(acls: Run) -> None:
    for name, pattern in (("ab", "prefixed"), ("abc", "literal"), ("*", "literal")):
        acls("add", "--allow-principal", "User:a", "--topic", name, "--resource-pattern-type", pattern)
    assert [row[6] for row in rows(acls("list", "--topic", "abc"))] == ["abc"]
    found = acls("list", "--topic", "abc", "--resource-pattern-type", "match", "--json")
    assert {each["name"] for each in json.loads(found.stdout)} == {"ab", "abc", "*"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "t"), "Say who: --allow-principal or --deny-principal."),
        (("--allow-principal", "User:a"), "Name what the ACLs are about"),
        (("--allow-principal", "a", "--topic", "t"), "'a' is no principal: write User:NAME."),
        (("--allow-principal", "User:a", "--group", "g", "--operation", "writ"), "is none of a group"),
        (("--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --topic and --group"),
        (("--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"), "literal or prefixed"),
        (("--allow-host", "h", "--topic", "t"), "A host needs a principal"),
        (("--allow-principal", "User:a", "--topic", "t", "--idempotent"), "--idempotent goes with --producer"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(
    guarded: KetchServer, arguments: tuple[str, ...], message: str
) -> None:
    guarded.redis().delete(KEY)
    assert message in Ketch(guarded)("acls", "add", *arguments, code=2).stderr.decode()
    assert not guarded.redis().exists(KEY)


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (("list",), "ACLs cannot be listed"),
        (("list", "--topic", "t", "--json"), "ACLs cannot be listed"),
        (("add", "--allow-principal", "User:a", "--topic", "t"), "An ACL was not added"),
        (("remove", "--topic", "t", "--yes"), "ACLs were not removed"),
    ],
)
def test_a_broker_without_an_authorizer_is_told_of(broker: KetchServer, words: tuple[str, ...], begin: str) -> None:
    refused = Ketch(broker)("acls", *words, code=1)
    assert (refused.stdout, refused.stderr.decode()) == (b"", f"ketch: {begin}: No Authorizer is configured.\n")


def test_who_may_not_list_them_is_told_so_and_needs_no_right_to_configs(tmp_path: Path) -> None:
    """That there are none is no error, neither is that the configs, which name the authorizer, are denied."""
    server = KetchServer(tmp_path / "ketch", *ON).start()
    ketch = Ketch(server)
    assert ketch("acls", "list", code=1).stderr == b"ketch: ACLs cannot be listed: Cluster authorization failed.\n"
    server.redis().sadd(KEY, allow(ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE).text)
    eventually(lambda: in_process(["acls", "list"], b"", environment(server)).returncode == 0)
    assert rows(ketch("acls", "list", "--principal", "User:nobody")) == []
    assert server.stop() == 0


@pytest.mark.parametrize("command", [("acls", "list"), ("users", "list")])
def test_an_option_beats_the_environment(guarded: KetchServer, command: tuple[str, ...]) -> None:
    """Without an option KETCH_REDIS counts, and before KETCH_BOOTSTRAP_SERVER."""
    nowhere = {"KETCH_REDIS": "redis://127.0.0.1:1"}
    ketch = Ketch(guarded)
    assert b"Redis at redis://127.0.0.1:1" in ketch(*command, code=1, **nowhere).stderr
    ketch(*command, "-b", guarded.bootstrap, **nowhere)
    ketch(*command, "--redis", guarded.redis_url, **nowhere)
    ketch(*command, KETCH_REDIS=guarded.redis_url, KETCH_BOOTSTRAP_SERVER="127.0.0.1:1")
    ketch(*command, "--redis", guarded.redis_url, "-b", "127.0.0.1:1")
