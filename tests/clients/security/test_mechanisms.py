"""Every client writes and reads over TLS with every mechanism that it has, as the same user with the same rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.security.conftest import Programs
from tests.clients.security.outcomes import CLIENTS, DENIED, LACKS, MECHANISMS, MTLS
from tests.clients.security.program import Refused
from tests.clients.security.site import GRANTED, Site
from tests.clients.test_sasl_clients import NONCE_IS_WRONG
from tests.support.ketch import eventually
from tests.support.sasl import SHA_256, SHA_512

PAGE = Path(__file__).parents[3] / "docs" / "security-clients.md"
ROWS = {name: {"java": "Java", "kafkajs": "KafkaJS"}.get(name, name) for name in CLIENTS}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    site.start()
    yield site
    site.stop()


def test_the_page_says_what_each_client_has() -> None:
    table = [[cell.strip() for cell in line.split("|")] for line in PAGE.read_text().splitlines() if "|" in line]
    for name, begin in ROWS.items():
        (cells,) = (row[3:-1] for row in table if row[1].startswith(begin) and len(row) == len(MECHANISMS) + 4)
        assert cells == ["-" if (name, mechanism) in LACKS else "works" for mechanism in MECHANISMS], name


def cases() -> Iterator[object]:
    """`make test` has one mechanism of each client: the programs are built and started for that in any case."""
    for name in CLIENTS:
        for mechanism in MECHANISMS:
            lacks = LACKS.get((name, mechanism))
            if mechanism in (SHA_256, SHA_512) and not NONCE_IS_WRONG:  # that of the kcat which is installed
                lacks = None
            marks = [pytest.mark.skip(reason=lacks)] if lacks else []
            usual = MTLS if name == "kcat" else SHA_512
            marks += [] if mechanism == usual else [pytest.mark.long(minutes=0.1)]
            yield pytest.param(name, mechanism, id=f"{name}-{mechanism}", marks=marks)


@pytest.mark.parametrize(("name", "mechanism"), list(cases()))
def test_a_client_is_alice(site: Site, programs: Programs, name: str, mechanism: str) -> None:
    program, login = programs(name), site.login(mechanism, name)
    topic = site.create(f"{GRANTED}{name}-{mechanism}")
    program.write(f"{topic}-w", login, topic, "by alice")
    assert program.read(f"{topic}-r", login, topic, topic, 1) == ["by alice"]
    eventually(lambda: site.server.redis().exists(f"korvet:commit:korvet:stream:{topic}:0:{topic}") or name == "kcat")
    denied = site.create(f"denied-{name}-{mechanism}")
    with pytest.raises(Refused, match=DENIED[name]):
        program.write(f"{topic}-w", login, denied, "by alice")
    assert site.server.redis().xlen(f"korvet:stream:{denied}:0") == 0
    program.close(f"{topic}-w", f"{topic}-r")
    lines = [line for line in site.server.log.splitlines() if f'"name": "{denied}"' in line]
    assert all('"principal": "User:alice"' in line and f'"client": "{name}"' in line for line in lines)
    assert lines
