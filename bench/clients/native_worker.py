"""Native consumers of one Redis consumer group: prints {"seconds": ...} from the first command to the last reply.

Argument: JSON with `socket` (Valkey's unix socket), `streams`, `group`, `count` (entries that are read at once).

A thread and a connection for each stream: XREADGROUP, then XACK of all that came; the next XREADGROUP goes out with it.
It looks at no value: of a reply it finds the entries' ids alone.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
from typing import Any

from ketch.redis.resp import pack

_ID = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n\*")  # it stands before the entry's fields
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n")
_NOTHING = b"*-1\r\n"


def main() -> None:
    options = json.loads(sys.argv[1])
    workers = [threading.Thread(target=work, args=(options, stream)) for stream in options["streams"]]
    begin = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({"seconds": time.monotonic() - begin}))


def work(options: dict[str, Any], stream: str) -> None:
    """Reads and acknowledges all that there is."""
    group = options["group"]
    read = pack("XREADGROUP", "GROUP", group, stream, "COUNT", options["count"], "STREAMS", stream, ">")
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(options["socket"])
        link.sendall(read)
        while ids := entries(link):
            link.sendall(pack("XACK", stream, group, *ids) + read)


def entries(link: socket.socket) -> list[bytes]:
    """The ids in the next reply to XREADGROUP; the reply to XACK before it is passed."""
    reply = link.recv(1 << 20)
    while True:
        if reply.startswith(b":") and b"\r\n" in reply:
            reply = reply[reply.index(b"\r\n") + 2 :]
        if reply == _NOTHING:
            return []
        if reply.startswith(b"-"):
            sys.exit(reply.decode())
        if reply.endswith(b"\r\n") and (head := _HEAD.match(reply)):
            ids = _ID.findall(reply)
            if len(ids) == int(head[1]) and is_whole(reply, ids[-1]):
                return ids
        reply += link.recv(1 << 20)


def is_whole(reply: bytes, last: bytes) -> bool:
    """Whether the entry `last` has all its fields."""
    fields = reply[reply.rindex(last) + len(last) + 2 :]
    head, _, rest = fields.partition(b"\r\n")
    return rest.count(b"\r\n") >= 2 * int(head[1:] or 0)


if __name__ == "__main__":
    main()
