"""Clients that are refused say so in their own words, none of them waits for ever, and the broker's log names each.

A line about a TLS handshake comes once a minute for a listener. So each client has listeners of its own for these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

import pytest

from ketch.security.acls import Operation, Permission, ResourceType
from tests.clients.security import outcomes
from tests.clients.security.conftest import Programs
from tests.clients.security.outcomes import MTLS
from tests.clients.security.program import Program, Refused
from tests.clients.security.site import ALICE, GRANTED, Site
from tests.support.acls import allow
from tests.support.certificates import Certificates
from tests.support.ketch import eventually
from tests.support.sasl import OAUTHBEARER, SHA_512, add_user

CLIENTS = [name for name in outcomes.CLIENTS if name != "kcat"]  # which is a process for each order
QUICK = {"java", "confluent-kafka", "franz-go"}  # these are in `make test`
AGAIN = "AGAIN"  # the listener on which a session lasts two seconds
_AGAIN = """
[listener.again]
connections_max_reauth_ms = 2000
"""
_OWN_KEY = """
[listener.{listener}]
ssl_keystore_location = "{path}"
"""


def of(kind: str, name: str) -> str:
    """A client's own listener."""
    return f"{kind}{CLIENTS.index(name)}"


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """What another authority signs."""
    return Certificates(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    mutual = [of(kind, name) for kind in ("OTHER", "LATE") for name in CLIENTS]
    sasl = [of(kind, name) for kind in ("UNTRUSTED", "STALE", "TURNING") for name in CLIENTS]
    stale = "".join(_OWN_KEY.format(listener=of("stale", n), path=directory / "stale.pem") for n in CLIENTS)
    turning = "".join(_OWN_KEY.format(listener=of("turning", n), path=directory / f"{n}.pem") for n in CLIENTS)
    site = Site(directory, mutual, [*sasl, AGAIN], _AGAIN + stale + turning)
    (directory / "stale.pem").write_bytes(site.files.broker("stale", expired=True).read_bytes())
    for name in CLIENTS:
        (directory / f"{name}.pem").write_bytes(site.files.broker().read_bytes())
    site.start()
    yield site
    site.stop()


@pytest.fixture(params=[pytest.param(n, marks=[] if n in QUICK else pytest.mark.long(minutes=0.5)) for n in CLIENTS])
def program(request: pytest.FixtureRequest, programs: Programs) -> Program:
    return programs(request.param)


def refused(program: Program, words: Mapping[str, str], login: dict[str, str], topic: str = f"{GRANTED}none") -> None:
    """The client finds its error at once: its first write, with a session of its own."""
    with pytest.raises(Refused) as error:
        program.write("refused", login, topic, "x")
    program.close("refused")
    assert re.search(words[program.name], str(error.value), re.DOTALL), str(error.value)


def logged(site: Site, line: str) -> None:
    """In the broker's log there is a line like that."""
    eventually(lambda: re.search(line, site.server.log), what=line)


def until_refused(program: Program, words: Mapping[str, str], session: str, login: dict[str, str], topic: str) -> None:
    """The client finds its error, with the session that it has: the first record that is not taken, or the next ones.

    Java's producer waits for the time that a record may take, where all it knows is that it has no leader.
    """
    said: list[str] = []

    def finds() -> bool:
        try:
            program.write(session, login, topic, "x")
        except Refused as error:
            said.append(str(error))
        return bool(said) and re.search(words[program.name], said[-1], re.DOTALL) is not None

    try:
        eventually(finds, 60.0)
    except AssertionError:
        raise AssertionError(f"{program.name} does not say {words[program.name]}, but: {set(said)}") from None


# -- who it is


@pytest.mark.parametrize("changed", [{"password": "wrong"}, {"user": "nobody"}], ids=["password", "user"])
def test_a_wrong_password(site: Site, program: Program, changed: dict[str, str]) -> None:
    client = f"{program.name}-{next(iter(changed))}"
    refused(program, outcomes.PASSWORD, site.login(SHA_512, client, **changed))
    why = re.escape("authentication failed (SCRAM-SHA-512): unknown user or wrong password")
    logged(site, rf"{client} at 127\.0\.0\.1:\d+: {why}")


def test_an_expired_token(site: Site, program: Program) -> None:
    client = f"{program.name}-token"
    refused(program, outcomes.TOKEN, site.login(OAUTHBEARER, client, token=site.token(seconds=-100)))
    why = re.escape("authentication failed (OAUTHBEARER): invalid token: ExpiredSignatureError")
    logged(site, rf"{client} at 127\.0\.0\.1:\d+: {why}")


def test_a_user_is_removed(site: Site, program: Program) -> None:
    """It may go on until it has to log in again."""
    user, client = f"gone-{program.name}", f"{program.name}-gone"
    add_user(site.server, user, "in-secret")
    topic = site.create(f"removed-{program.name}")
    site.grant(*site.rights(topic, f"User:{user}"))
    login = site.login(SHA_512, client, AGAIN, user=user)
    eventually(lambda: written(program, client, login, topic), what="the ACLs to be in force")
    add_user(site.server, user, "", "--yes", command="delete")
    until_refused(program, outcomes.USER_GONE, client, login, topic)
    refused(program, outcomes.PASSWORD, login, topic)
    program.close(client)
    logged(site, rf"{client} at 127\.0\.0\.1:\d+: (re-)?authentication failed \(SCRAM-SHA-512\): unknown user")


def written(program: Program, session: str, login: dict[str, str], topic: str) -> bool:
    try:
        program.write(session, login, topic, "x")
    except Refused:
        return False
    return True


# -- what it may do


EVERY = pytest.param([Operation.ALL], id="all", marks=pytest.mark.long(minutes=0.5))


@pytest.mark.parametrize("operations", [pytest.param([Operation.READ, Operation.WRITE], id="read and write"), EVERY])
def test_a_right_is_taken_away(site: Site, program: Program, operations: list[Operation]) -> None:
    """From sessions that go on: the producer's, and the consumer's."""
    client = f"{program.name}-{operations[0].name}"
    topic, login = site.create(f"{GRANTED}{client}"), site.login(SHA_512, client)
    program.write(f"{client}-w", login, topic, "x")
    assert program.read(f"{client}-r", login, topic, topic, 1) == ["x"]
    for operation in operations:
        for kind in (ResourceType.TOPIC, ResourceType.GROUP):
            site.grant(allow(kind, topic, operation, Permission.DENY, principal=ALICE))
    until_refused(program, outcomes.DENIED, f"{client}-w", login, topic)
    said = eventually(lambda: read_refused(program, f"{client}-r", login, topic), 90.0, "the member's error")
    assert re.search(outcomes.READ_DENIED[program.name], str(said), re.DOTALL), said
    program.close(f"{client}-w", f"{client}-r")
    for api in ("Produce|Metadata", "Fetch|Metadata|OffsetCommit|Heartbeat|FindCoordinator|JoinGroup|SyncGroup"):
        logged(site, rf'"principal": "User:alice", .*"client": "{client}", "api": "({api})", .*"name": "{topic}"')


def read_refused(program: Program, session: str, login: dict[str, str], topic: str) -> str | None:
    """What a member says that finds an error; None where it has none yet: KafkaJS tries several times."""
    try:
        program.read(session, login, topic, topic, 1)
    except Refused as error:
        return str(error)
    return None


# -- its certificate, and the broker's


@pytest.mark.parametrize(
    ("kind", "words", "why"),
    [
        ("OTHER", outcomes.OTHER_AUTHORITY, "the client's certificate is refused: unable to get local issuer"),
        ("LATE", outcomes.EXPIRED, "the client's certificate is refused: certificate has expired"),
    ],
)
def test_a_certificate_is_refused(
    site: Site, strangers: Certificates, program: Program, kind: str, words: Mapping[str, str], why: str
) -> None:
    own = strangers.client("alice") if kind == "OTHER" else site.files.client("late", expired=True)
    listener = of(kind, program.name)
    refused(program, words, site.login(MTLS, f"{program.name}-{kind}", listener, own=str(own)))
    logged(site, rf"listener {listener}: 127\.0\.0\.1:\d+: TLS handshake failed: {why}")


def test_a_broker_that_the_client_does_not_trust(site: Site, strangers: Certificates, program: Program) -> None:
    """The broker knows of it what the client's alert says, which differs between libraries."""
    listener = of("UNTRUSTED", program.name)
    refused(program, outcomes.UNTRUSTED, site.login(SHA_512, program.name, listener, ca=str(strangers.ca)))
    if program.name not in outcomes.WITHOUT_ALERT:
        logged(site, rf"listener {listener}: 127\.0\.0\.1:\d+: TLS handshake failed: the client does not ")


def test_a_broker_whose_certificate_has_expired(site: Site, program: Program) -> None:
    listener = of("STALE", program.name)
    refused(program, outcomes.BROKER_EXPIRED, site.login(SHA_512, program.name, listener))
    if program.name not in outcomes.WITHOUT_ALERT:
        logged(site, rf"listener {listener}: 127\.0\.0\.1:\d+: TLS handshake failed: the client ")


def test_connections_that_stand_outlast_a_certificate(site: Site, strangers: Certificates, program: Program) -> None:
    """The new one is of an authority that the client does not know: what connects anew would fail."""
    listener, session = of("TURNING", program.name), f"{program.name}-turning"
    topic = site.create(f"{GRANTED}turning-{program.name}")
    login = site.login(SHA_512, session, listener)
    program.write(session, login, topic, "before")
    path = site.directory / f"{program.name}.pem"
    os.replace(strangers.broker(program.name), path)
    logged(site, f"listener {listener} has the new certificates of its files")
    program.write(session, login, topic, "after")
    refused(program, outcomes.UNTRUSTED, login)
    program.write("trusting", login | {"ca": str(strangers.ca)}, topic, "anew")
    program.close(session, "trusting")
    assert site.server.redis().xlen(f"korvet:stream:{topic}:0") == 3
