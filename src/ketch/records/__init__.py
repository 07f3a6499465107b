"""RecordBatch v2 <-> entries of a Redis stream: bytes in, bytes out, no I/O.

A record is one entry. Its fields, in the order Ketch writes them, are a contract with every Redis client that reads or
writes the streams; names and values are bytes:

=====================  =====================================================================================
field                  value
=====================  =====================================================================================
``key``                the record's key; no field: the key is null
``value``              the record's value; no field: the value is null (a tombstone)
``timestamp``          ms since the epoch, in decimal, may be negative; the producer's, or the broker's when the
                       topic says LogAppendTime
``transaction``        ``<producer id>:<epoch>``, decimal, of a record that was produced in a transaction (KIP-98)
``header.<name>``      a header's value; one field per header, in the record's order, names may repeat and be empty
``nullheader.<name>``  a header whose value is null; the field's value is empty
``control``            ``commit`` or ``abort``, beside ``transaction``: the entry is that transaction's marker, which
                       has no key, value or headers of its own
"coordinator.epoch"    of a marker: the epoch of the coordinator that wrote it, decimal int32; else 0
=====================  =====================================================================================

Ketch writes ``timestamp`` always. It reads fields in any order, takes the first ``key``, ``value`` and ``timestamp``
where one repeats, and passes over fields that the table does not name. Where ``timestamp`` is absent or no decimal
int64 the record has the entry id's time, or -1 (no timestamp) when ids are a counter (``offset.ids=dense``).
A ``transaction`` of another form is passed over, and a ``control`` that is neither word or has no such ``transaction``
beside it: the entry is then a record as any other. Headers cannot be taken for these fields, because they are called
``header.<name>``.

The functions that see every record come from a Cython kernel or, where it was not built, from its twin in Python;
:data:`KERNEL` says which. ``KETCH_KERNEL=python`` in the environment asks for the twin.
"""

from __future__ import annotations

import os
from typing import Literal

from ketch.records.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    DecodedBatch,
    assemble,
    empty_batch,
    patch,
    peek_header,
    read_header,
    rewrite,
    split_batches,
    thinned,
)
from ketch.records.compression import BytesLike, Codec, compress, decompress

KERNEL: Literal["cython", "python"]

try:
    if os.environ.get("KETCH_KERNEL") == "python":
        raise ImportError
    from ketch.records._kernel import (
        add_newest,
        check_records,
        columns_to_records,
        decode_entries,
        encode_appends,
        encode_arguments,
        find_batches,
        frame_messages,
        has_word,
        join_batches,
        largest_record,
        plain_messages,
        records_to_columns,
        scan_reply,
        select_records,
        still_newest,
    )

    KERNEL = "cython"
except ImportError:
    from ketch.records._pure import (
        check_records,
        columns_to_records,
        decode_entries,
        encode_appends,
        encode_arguments,
        find_batches,
        join_batches,
        largest_record,
        records_to_columns,
        scan_reply,
    )
    from ketch.records._pure_compact import add_newest, select_records, still_newest
    from ketch.records._pure_messages import frame_messages, has_word, plain_messages

    KERNEL = "python"

__all__ = [
    "CONTROL",
    "HEADER_SIZE",
    "KERNEL",
    "TRANSACTIONAL",
    "BatchHeader",
    "BytesLike",
    "Codec",
    "DecodedBatch",
    "add_newest",
    "assemble",
    "check_records",
    "columns_to_records",
    "compress",
    "decode_entries",
    "decompress",
    "empty_batch",
    "encode_appends",
    "encode_arguments",
    "find_batches",
    "frame_messages",
    "has_word",
    "join_batches",
    "largest_record",
    "patch",
    "peek_header",
    "plain_messages",
    "read_header",
    "records_to_columns",
    "rewrite",
    "scan_reply",
    "select_records",
    "split_batches",
    "still_newest",
    "thinned",
]
