"""Kafka's own tools over SASL_SSL: a user is given a password, rights and a quota, and loses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.security.outcomes import MECHANISMS
from tests.clients.security.properties import ALLOWED_URLS, java, text
from tests.clients.security.site import GRANTED, MUTUAL, SASL, Site
from tests.support.apache_kafka import missing_tools
from tests.support.kafka_tools import KafkaTools
from tests.support.ketch import eventually
from tests.support.sasl import SHA_512

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
CONFIGS, ACLS = "kafka.admin.ConfigCommand", "AclCommand"
BOB = "another-secret"

Tool = Callable[..., list[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    site.start()
    yield site
    assert BOB not in site.server.log
    site.stop()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[KafkaTools]:
    allowed = f"-D{ALLOWED_URLS}={(site.directory / 'token').as_uri()}"
    with KafkaTools(tmp_path_factory.mktemp("tools"), allowed) as running:
        yield running


def config(site: Site, mechanism: str, **changed: str) -> str:
    """The path of a file for --command-config."""
    path: Path = site.directory / f"{mechanism}-{'-'.join(changed.values())}.properties"
    path.write_text(text(java(site.login(mechanism, "tools", **changed), site.directory / "token")))
    return str(path)


@pytest.fixture
def tool(site: Site, tools: KafkaTools) -> Tool:
    """What a tool prints, which has to end with `code`; as the administrator unless a file says who."""
    admin = config(site, SHA_512, user="admin")

    def run(name: str, *arguments: str, as_: str = admin, listener: str = SASL, code: int = 0) -> list[str]:
        where = ("--bootstrap-server", site.address(listener), "--command-config", as_)
        found, printed = tools.run(name, *where, *arguments)
        assert found == code, printed
        return [line for line in printed.splitlines() if line]

    return run


def produce(site: Site, tools: KafkaTools, who: str, topic: str, value: str, codes: tuple[int, ...] = (0,)) -> None:
    """The tool says what it was refused in its log alone."""
    where = ("--bootstrap-server", site.address(SASL), "--producer.config", who, "--topic", topic)
    short = ("--max-block-ms", "10000", "--request-timeout-ms", "5000")
    code, _ = tools.run("ConsoleProducer", *where, *short, given=f"{value}\n")
    assert code in codes


def consume(site: Site, tools: KafkaTools, who: str, topic: str) -> list[str]:
    where = ("--bootstrap-server", site.address(SASL), "--consumer.config", who, "--topic", topic, "--group", topic)
    words = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
    return tools.run("consumer.ConsoleConsumer", *where, *words)[1].splitlines()


def test_a_user_is_given_what_it_needs_and_loses_it(site: Site, tools: KafkaTools, tool: Tool) -> None:
    user = ("--entity-type", "users", "--entity-name", "bob")
    assert tool("TopicCommand", "--create", "--topic", "tools") == ["Created topic tools."]
    said = tool(CONFIGS, "--alter", *user, "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={BOB}]")
    assert said == ["Completed updating config for user bob."]
    assert tool(CONFIGS, "--describe", *user) == ["SCRAM credential configs for user-principal 'bob' are"
                                                  " SCRAM-SHA-512=iterations=8192"]  # fmt: skip
    bob = config(site, SHA_512, user="bob", password=BOB)
    denied = '"principal": "User:bob", '
    assert denied not in site.server.log
    produce(site, tools, bob, "tools", "too early")
    eventually(lambda: denied in site.server.log)

    rights = ("--allow-principal", "User:bob", "--topic", "tools", "--producer")
    added = tool(ACLS, "--add", *rights)
    assert any("principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW" in line for line in added), added
    tool(ACLS, "--add", "--allow-principal", "User:bob", "--topic", "tools", "--group", "tools", "--consumer")
    listed = "\n".join(tool(ACLS, "--list", "--principal", "User:bob"))
    for operation in ("WRITE", "DESCRIBE", "CREATE", "READ"):
        assert f"operation={operation}, permissionType=ALLOW" in listed
    produce(site, tools, bob, "tools", "by bob")
    assert consume(site, tools, bob, "tools")[0] == "by bob"

    said = tool(CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152")
    assert said == ["Completed updating config for user bob."]
    (shown, *_) = tool(CONFIGS, "--describe", *user)
    assert "producer_byte_rate=1048576.0" in shown
    assert "consumer_byte_rate=2097152.0" in shown

    tool(ACLS, "--remove", "--force", *rights)
    # It may describe the topic still, but gets no producer id. If the producer knows that before the record, it throws.
    produce(site, tools, bob, "tools", "too late", codes=(0, 1))
    tool(CONFIGS, "--alter", *user, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    tool(CONFIGS, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    produce(site, tools, bob, "tools", "nobody")
    eventually(lambda: "authentication failed (SCRAM-SHA-512): unknown user" in site.server.log)
    assert site.server.redis().xlen("korvet:stream:tools:0") == 1


@pytest.mark.long(minutes=0.5)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism(site: Site, tool: Tool, mechanism: str) -> None:
    """A user that is not the administrator sees the topics that it may see."""
    topic = site.create(f"{GRANTED}tools-{mechanism}")
    listener = MUTUAL if mechanism == "mTLS" else SASL
    found = tool("TopicCommand", "--list", as_=config(site, mechanism), listener=listener)
    assert topic in found
    assert all(each.startswith(GRANTED) for each in found)
    denied = tool(ACLS, "--list", as_=config(site, mechanism), listener=listener, code=1)
    assert any("ClusterAuthorizationException: Cluster authorization failed." in line for line in denied)


def test_a_wrong_password(site: Site, tool: Tool) -> None:
    said = tool("TopicCommand", "--list", as_=config(site, SHA_512, password="wrong"), code=1)
    assert any("Authentication failed during authentication due to invalid credentials" in line for line in said), said
