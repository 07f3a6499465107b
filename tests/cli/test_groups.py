"""`ketch groups` as a user runs it, on a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import batch, record
from tests.support.cli import Done, Ketch
from tests.support.consumer_members import Beater
from tests.support.groups import Member, assignment, subscription
from tests.support.ketch import KetchServer
from tests.support.redis_servers import RedisServer, binaries

Run = Callable[..., Done]
START = 1_700_000_000_000


@pytest.fixture
def groups(broker: KetchServer) -> Run:
    """`groups("list", code=0)`."""
    return partial(Ketch(broker), "groups")


class Scene:
    """A topic with ten records in partition 0, and a group that has committed the fourth."""

    def __init__(self, member: Member, topic: str, kind: str) -> None:
        self.member, self.topic, self.group = member, topic, member.group
        ids, _, layout = kind.partition("-")
        member.create(topic, 2, offset_ids=ids, storage_layout=layout or "record")
        self.offsets: list[int] = []
        for first, count in ((0, 4), (4, 5), (9, 1)) if layout else ((n, 1) for n in range(10)):
            rows = [record(b"x", offset_delta=n, timestamp_delta=1000 * n) for n in range(count)]
            start, latest = START + 1000 * first, START + 1000 * (first + count - 1)
            base = member.stored(topic, batch(rows, base_timestamp=start, max_timestamp=latest))
            self.offsets += range(base, base + count)
        self.commit(3)

    def commit(self, record: int) -> None:
        assert self.member.commit(self.topic, self.offsets[record], generation_id_or_member_epoch=-1) == 0

    def committed(self) -> int:
        return self.member.committed(self.topic)[0]


@pytest.fixture(params=["time", "dense", "time-batch"])
def scene(request: pytest.FixtureRequest, broker: KetchServer, topic: str) -> Iterator[Scene]:
    with Member(broker.port, f"g-{topic}") as member:
        yield Scene(member, topic, request.param)


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_list(groups: Run, scene: Scene) -> None:
    assert f"{scene.group}\tEmpty".encode() in groups("list").stdout.splitlines()
    assert {"group": scene.group, "state": "Empty", "type": "classic"} in json.loads(groups("list", "--json").stdout)


def describe(groups: Run, name: str, *arguments: str, **env: str) -> Any:
    (group,) = json.loads(groups("describe", name, "--json", *arguments, **env).stdout)
    return group


def test_describe_counts_records(groups: Run, scene: Scene) -> None:
    group = describe(groups, scene.group)
    assert (group["state"], group["members"]) == ("Empty", [])
    (place,) = group["partitions"]
    assert (place["topic"], place["partition"], place["committed"]) == (scene.topic, 0, scene.offsets[3])
    assert (place["lag"], place["end"], place["member"]) == (7, scene.offsets[-1] + 1, None)
    line = groups("describe", scene.group).stdout.decode().rstrip("\n").split("\t")
    assert line == [scene.group, "Empty", scene.topic, "0", str(scene.offsets[3]), str(place["end"]), "7", "", "", ""]


def test_describe_members(groups: Run, scene: Scene) -> None:
    member = scene.member
    member.enter(protocols={"range": subscription(scene.topic)})
    member.sync({member.id: assignment({scene.topic: [0, 1]})})
    assert member.fetch(scene.topic, scene.offsets[3]).error_code == 0  # given seven, committed none of them
    group = describe(groups, scene.group)
    assert group["state"] == "Stable"
    assert group["members"] == [{"member": member.id, "client": "raw", "host": "/127.0.0.1"}]
    assert [(p["committed"], p["lag"], p["member"]) for p in group["partitions"]] == [
        (scene.offsets[3], 7, member.id),
        (None, None, member.id),
    ]
    refused = groups("reset-offsets", scene.group, "--to-earliest", "--execute", code=1)
    assert b"has members" in refused.stderr
    assert groups("delete", scene.group, "--yes", code=1)


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_describe_epochs(broker: KetchServer, groups: Run, scene: Scene) -> None:
    """Of a consumer group, one of whose members uses the classic protocol still; librdkafka's answers have none."""
    with Beater(broker.port, scene.group) as new:
        assert "epoch" not in describe(groups, scene.group)
        new.enters(scene.topic)
        assert scene.member.enter(protocols={"range": subscription(scene.topic)}).error_code == 0
        group = describe(groups, scene.group)
        epoch = new.generation
        assert (group["type"], group["epoch"], group["assignment_epoch"]) == ("consumer", epoch + 1, epoch + 1)
        found = {member["member"]: (member["epoch"], member["upgraded"]) for member in group["members"]}
        assert found == {new.id: (epoch, True), scene.member.id: (epoch + 1, False)}
        new.goes()


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_lag_behind_what_was_deleted(broker: KetchServer, groups: Run, scene: Scene) -> None:
    stream = f"korvet:stream:{scene.topic}:0"
    entries = [entry for entry, _ in broker.redis().xrange(stream)]
    broker.redis().xdel(stream, entries[5], entries[6])
    assert describe(groups, scene.group)["partitions"][0]["lag"] == 5


def test_redis_is_where_it_is_said_to_be(broker: KetchServer, groups: Run, scene: Scene) -> None:
    assert describe(groups, scene.group, "--redis", broker.redis_url)["partitions"][0]["lag"] == 7
    refused = groups("describe", scene.group, "--redis", "redis://127.0.0.1:1", code=1)
    assert b"Redis at redis://127.0.0.1:1 cannot be used" in refused.stderr


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_list_with_figures(groups: Run, scene: Scene) -> None:
    found = {group["group"]: group for group in json.loads(groups("list", "--stats", "--json").stdout)}
    assert found[scene.group] == {"group": scene.group, "state": "Empty", "type": "classic", "members": 0, "lag": 7}
    assert f"{scene.group}\tEmpty\t0\t7".encode() in groups("list", "--stats").stdout.splitlines()


def test_lag_without_redis(tmp_path: Path, start_ketch: Callable[..., KetchServer]) -> None:
    server = RedisServer(next(iter(binaries().values())), tmp_path, "--requirepass", "secret")
    url = server.url.replace("//", "//:secret@")
    try:
        broker = start_ketch("--redis", url)
        groups = partial(Ketch(broker), "groups")
        for kind, lag in (("time", None), ("dense", 7)):
            with Member(broker.port, f"g-{kind}") as member:
                scene = Scene(member, f"t-{kind}", kind)
                done = groups("describe", scene.group, "--json")
                assert json.loads(done.stdout)[0]["partitions"][0]["lag"] == lag
                assert done.stderr.startswith(b"ketch: lag in records is left out. Redis at ")
                assert describe(groups, scene.group, "--redis", url)["partitions"][0]["lag"] == 7
        refused = groups("reset-offsets", "g-time", "--shift-by", "1", code=1)
        assert b"password" in refused.stderr
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("arguments", "record"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "0"], 0),
        (["--to-datetime", datetime.fromtimestamp(START / 1000 + 4.5, UTC).isoformat()], 5),
        (["--to-datetime", "2100-01-01T00:00:00+00:00"], 10),
        (["--shift-by", "2"], 5),
        (["--shift-by", "-2"], 1),
        (["--shift-by", "100"], 10),
        (["--shift-by", "-100"], 0),
        (["--shift-by", "0"], 3),
    ],
)
@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_reset(groups: Run, scene: Scene, arguments: list[str], record: int) -> None:
    (row,) = json.loads(groups("reset-offsets", scene.group, *arguments, "--execute", "--json").stdout)
    assert (row["from"], row["executed"]) == (scene.offsets[3], True)
    assert scene.committed() == row["to"]
    ends = [place.offset for place in (scene.member.list_offsets(scene.topic, special) for special in (-2, -1))]
    assert row["to"] in ([ends[0]] if record == 0 else [ends[1]] if record == 10 else [scene.offsets[record]]) or (
        row["to"] == scene.offsets[record - 1] + 1
    )


@pytest.mark.parametrize("scene", ["dense"], indirect=True)
def test_reset_is_shown_first(groups: Run, scene: Scene) -> None:
    shown = groups("reset-offsets", scene.group, "--shift-by", "-2")
    assert scene.committed() == 3, "a dry run"
    assert shown.stdout == f"{scene.group}\t{scene.topic}\t0\t3\t1\n".encode()
    assert b"--execute" in shown.stderr
    groups("reset-offsets", scene.group, "--shift-by", "-2", "--execute")
    assert scene.committed() == 1
    assert describe(groups, scene.group)["partitions"][0]["lag"] == 9


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_reset_of_a_new_group(groups: Run, scene: Scene) -> None:
    name = f"new-{scene.topic}"
    groups("reset-offsets", name, "--topic", f"{scene.topic}:1", "--to-earliest", "--execute")
    assert [p["partition"] for p in describe(groups, name)["partitions"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, b"Give one of"),
        (["--to-latest", "--to-earliest"], 2, b"Give one of"),
        (["--to-datetime", "yesterday"], 2, b"yesterday"),
        (["--to-latest"], 2, b"--topic"),
        (["--to-latest", "--topic", "no-such"], 1, b"no such topic"),
    ],
)
def test_what_reset_refuses(groups: Run, topic: str, arguments: list[str], code: int, said: bytes) -> None:
    assert said in groups("reset-offsets", f"none-{topic}", *arguments, code=code).stderr


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_delete(groups: Run, scene: Scene) -> None:
    assert b"--yes" in groups("delete", scene.group, code=2).stderr
    assert groups("delete", scene.group, "--yes").stdout == f"Group {scene.group} was deleted.\n".encode()
    assert scene.committed() == -1
    again = groups("delete", scene.group, "--yes", "--json", code=1)
    assert again.stderr.startswith(b"ketch: ")
    assert again.stdout == b""
    assert b"no such group" in groups("describe", scene.group, code=1).stderr


@pytest.mark.parametrize("scene", ["time"], indirect=True)
def test_groups_that_exist_are_described(groups: Run, scene: Scene) -> None:
    done = groups("describe", scene.group[:-1], scene.group, "--json", code=1)
    assert [group["group"] for group in json.loads(done.stdout)] == [scene.group]
    assert b"there is no such group (did you mean g-" in done.stderr
    assert b"(did you mean g-" in groups("delete", scene.group[:-1], "--yes", code=1).stderr
