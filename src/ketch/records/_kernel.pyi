from collections.abc import Sequence

from ketch.records._buffers import BinaryBuffers, Buffer, Columns, ListBuffers
from ketch.records.batch import DecodedBatch
from ketch.records.compression import BytesLike

def encode_appends(
    records: BytesLike,
    count: int,
    key: bytes,
    ms: int,
    seq: int,
    bits: int,
    base_timestamp: int,
    timestamp: int | None,
    transaction: bytes = b"",
) -> bytes: ...
def encode_arguments(
    records: BytesLike, count: int, base_timestamp: int, timestamp: int | None, transaction: bytes = b""
) -> tuple[bytes, int]: ...
def largest_record(records: BytesLike, count: int) -> int: ...
def decode_entries(
    reply: BytesLike, bits: int, dense: bool, max_bytes: int, split_timestamps: bool
) -> list[DecodedBatch]: ...
def check_records(records: BytesLike, count: int, last_offset_delta: int) -> None: ...
def add_newest(
    table: bytearray, secret: bytes, room: int, records: BytesLike, count: int, base_offset: int
) -> tuple[int, int]: ...
def still_newest(
    table: bytearray,
    secret: bytes,
    records: BytesLike,
    count: int,
    base_offset: int,
    below: int,
    tombstones_below: int,
) -> bytearray: ...
def select_records(records: BytesLike, mask: bytearray) -> bytes: ...
def find_batches(
    reply: BytesLike, bits: int, dense: bool, field: bytes = b"batch"
) -> list[tuple[int, int, int, int, int]]: ...
def join_batches(
    reply: BytesLike, bits: int, dense: bool, max_bytes: int, large_mean: int
) -> tuple[bytes, int, int, int, int, int, bool] | None: ...
def plain_messages(data: bytes) -> tuple[int, bytes, bytes] | None: ...
def frame_messages(
    batches: Sequence[DecodedBatch],
    start: int,
    stop: int,
    base: int,
    magic: int,
    whole: Sequence[tuple[int, int, bytes]],
    others: Buffer,
) -> tuple[Buffer, Buffer, Buffer, int]: ...
def has_word(data: BytesLike, word: bytes) -> bool: ...
def scan_reply(buf: BytesLike, pos: int, end: int, pending: int) -> tuple[int, int]: ...
def records_to_columns(batches: Sequence[DecodedBatch]) -> Columns: ...
def columns_to_records(
    count: int,
    offsets: Buffer,
    timestamps: Buffer,
    keys: BinaryBuffers,
    values: BinaryBuffers,
    headers: ListBuffers,
    names: BinaryBuffers,
    contents: BinaryBuffers,
    max_bytes: int,
    split_timestamps: bool,
) -> list[DecodedBatch]: ...
