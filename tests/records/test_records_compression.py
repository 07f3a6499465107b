"""The codecs: every framing that producers write, every way to be damaged, and bombs."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import CorruptRecord, RecordTooLarge, UnsupportedCompression
from ketch.records import compress, decompress

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MB = 1 << 20

each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)

TEXT = b"key-value " * 12
# Frames of TEXT by other libraries: blocks that depend on each other or not, with and without sizes and checksums.
FOREIGN = {
    "lz4 independent blocks, checksum, no size": (
        3,
        "04224d186440a714000000af6b65792d76616c7565200a005650616c75652000000000482201a1",
    ),
    "lz4 linked blocks, size": (
        3,
        "04224d18684078000000000000008114000000af6b65792d76616c7565200a005650616c75652000000000",
    ),
    "snappy raw": (2, "78246b65792d76616c756520fe0a00b60a00"),
    "snappy xerial": (2, "82534e41505059000000000100000001 00000012 78246b65792d76616c756520fe0a00b60a00"),
    "zstd streamed, no size": (4, "28b52ffd00588d0000506b65792d76616c7565200100ab694102"),
    "zstd size, checksum": (4, "28b52ffd2478950000586b65792d76616c7565206b0100aa69f1020c8e8bb3"),
    "zstd behind a skippable frame": (
        4,
        "502a4d1803000000616263 28b52ffd00588d0000506b65792d76616c7565200100ab694102",
    ),
}


def sample(size: int, seed: int = 1) -> bytes:
    """Half noise, half text: blocks that compress and blocks that do not."""
    source = random.Random(seed)
    return (source.randbytes(size // 2) + b"some text that repeats " * size)[:size]


class TestRoundTrip:
    @each_codec
    @pytest.mark.parametrize("size", [0, 1, 100, 32767, 32768, 32769, 65536, 65537, 200_000, 3 * MB])
    def test_sizes(self, codec: int, size: int) -> None:
        data = sample(size)
        assert bytes(decompress(codec, compress(codec, data), size)) == data

    @each_codec
    @given(data=st.binary(max_size=300), repeat=st.integers(1, 300))
    def test_any_bytes(self, codec: int, data: bytes, repeat: int) -> None:
        for kind in (bytes, bytearray, memoryview):
            packed = kind(compress(codec, kind(data * repeat)))
            assert bytes(decompress(codec, packed, 300 * 300)) == data * repeat

    def test_none(self) -> None:
        assert decompress(0, compress(0, TEXT), len(TEXT)) == TEXT
        with pytest.raises(RecordTooLarge):
            decompress(0, TEXT, len(TEXT) - 1)

    @pytest.mark.parametrize("codec", [-1, 5, 6, 7, 8])
    def test_unknown(self, codec: int) -> None:
        with pytest.raises(UnsupportedCompression, match=str(codec)):
            decompress(codec, TEXT, 1000)
        with pytest.raises(UnsupportedCompression, match=str(codec)):
            compress(codec, TEXT)


class TestFraming:
    def test_snappy_is_xerial(self) -> None:
        data = sample(70_000)
        packed = compress(2, data)
        assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        pos, plain = 16, b""
        while pos < len(packed):
            (size,) = struct.unpack_from(">i", packed, pos)
            plain += bytes(cramjam.snappy.decompress_raw(packed[pos + 4 : pos + 4 + size]))
            pos += 4 + size
        assert plain == data

    def test_lz4_blocks_are_independent(self) -> None:
        """Kafka's Java client refuses other frames."""
        packed = compress(3, sample(200_000))
        assert packed[:4] == bytes.fromhex("04224d18")
        assert packed[4] & 0xE0 == 0x60

    def test_gzip_is_plain(self) -> None:
        assert gzip.decompress(compress(1, TEXT)) == TEXT


class TestForeign:
    @pytest.mark.parametrize("name", FOREIGN)
    def test_is_read(self, name: str) -> None:
        codec, packed = FOREIGN[name]
        assert bytes(decompress(codec, bytes.fromhex(packed), len(TEXT))) == TEXT

    @pytest.mark.parametrize("name", [name for name in FOREIGN if "snappy" not in name])
    def test_several_frames(self, name: str) -> None:
        codec, packed = FOREIGN[name]
        assert bytes(decompress(codec, bytes.fromhex(packed) * 3, 3 * len(TEXT))) == TEXT * 3

    def test_several_gzip_members(self) -> None:
        assert bytes(decompress(1, gzip.compress(TEXT) + gzip.compress(b"x"), MB)) == TEXT + b"x"

    def test_several_xerial_blocks(self) -> None:
        packed = bytes.fromhex(FOREIGN["snappy xerial"][1])
        assert bytes(decompress(2, packed + packed[16:] * 2, MB)) == TEXT * 3

    @pytest.mark.parametrize("codec", [1, 3, 4])
    def test_written_in_pieces(self, codec: int) -> None:
        module = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}[codec]
        writer = module.Compressor()
        packed = b""
        for _ in range(40):
            writer.compress(sample(10_000))
            packed += bytes(writer.flush())
        packed += bytes(writer.finish())
        assert bytes(decompress(codec, packed, MB)) == sample(10_000) * 40


class TestDamage:
    @each_codec
    @pytest.mark.parametrize("size", [0, 120, 2000])
    def test_every_prefix(self, codec: int, size: int) -> None:
        packed = compress(codec, sample(size))
        for cut in range(len(packed)):
            if codec == 2 and cut == 16:  # the header alone is a whole stream of no blocks
                continue
            with pytest.raises(CorruptRecord):
                decompress(codec, packed[:cut], MB)

    @pytest.mark.parametrize("name", FOREIGN)
    def test_every_prefix_of_foreign_frames(self, name: str) -> None:
        codec, text = FOREIGN[name]
        packed = bytes.fromhex(text)
        whole = {"snappy xerial": 16, "zstd behind a skippable frame": 11}.get(name)
        for cut in range(len(packed)):
            if cut != whole:
                with pytest.raises(CorruptRecord):
                    decompress(codec, packed[:cut], MB)

    @each_codec
    def test_bytes_behind(self, codec: int) -> None:
        with pytest.raises(CorruptRecord):
            decompress(codec, compress(codec, TEXT) + b"\x01\x02\x03", MB)

    @each_codec
    @given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4))
    def test_flipped_bits(self, codec: int, flips: list[tuple[int, int]]) -> None:
        packed = bytearray(compress(codec, sample(3000)))
        for at, bit in flips:
            packed[at % len(packed)] ^= 1 << bit
        self.never_odd(codec, bytes(packed))

    @each_codec
    @given(data=st.binary(max_size=100))
    def test_random_bytes(self, codec: int, data: bytes) -> None:
        self.never_odd(codec, data)
        self.never_odd(codec, compress(codec, b"")[:9] + data)

    def never_odd(self, codec: int, packed: bytes) -> None:
        with contextlib.suppress(CorruptRecord, RecordTooLarge):
            assert len(decompress(codec, packed, 10_000)) <= 10_000


class TestLimit:
    @each_codec
    @pytest.mark.parametrize("size", [1, 1000, 100_000, 2 * MB, 2 * MB + 1, 5 * MB])
    def test_to_the_byte(self, codec: int, size: int) -> None:
        packed = compress(codec, bytes(size))
        assert len(decompress(codec, packed, size)) == size
        with pytest.raises(RecordTooLarge):
            decompress(codec, packed, size - 1)

    @each_codec
    def test_nothing_fits_into_nothing(self, codec: int) -> None:
        assert bytes(decompress(codec, compress(codec, b""), 0)) == b""
        with pytest.raises(RecordTooLarge):
            decompress(codec, compress(codec, b"x"), 0)


# ---- bombs: a few MB at most that inflate to gigabytes


def gzip_stream() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(MB)) for _ in range(256)) + packer.flush()


def gzip_members() -> bytes:
    return gzip.compress(bytes(16 * MB)) * 640  # 10 GB


def snappy_length() -> bytes:
    return b"\xff\xff\xff\xff\x0f" + b"\x00x" * 1000


def snappy_blocks() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(4 * MB)))
    return compress(2, b"") + (struct.pack(">i", len(block)) + block) * 16


def lz4_stream() -> bytes:
    frame = compress(3, bytes(64 * 1024))
    return frame[:7] + frame[7:-4] * 16384 + frame[-4:]


def lz4_frames() -> bytes:
    return compress(3, bytes(MB)) * 1024


def zstd_frame(window_log: int) -> bytes:
    """One frame that does not say its size: 10 GB in blocks that repeat one byte."""
    block = struct.pack("<I", 1 << 1 | (128 * 1024) << 3)[:3] + b"x"
    return bytes.fromhex("28b52ffd00") + bytes([window_log - 10 << 3]) + block * 81920


def zstd_stream() -> bytes:
    return zstd_frame(17)


def zstd_wide_window() -> bytes:
    return zstd_frame(27)


def zstd_widest_window() -> bytes:
    return zstd_frame(41)


def zstd_frames() -> bytes:
    return compress(4, bytes(16 * MB)) * 640


BOMBS: dict[str, Callable[[], bytes]] = {
    make.__name__: make
    for make in (
        *(gzip_stream, gzip_members),
        *(snappy_length, snappy_blocks),
        *(lz4_stream, lz4_frames),
        *(zstd_stream, zstd_wide_window, zstd_widest_window, zstd_frames),
    )
}

LIMIT = 8 * MB
PROBE = f"""
import sys
from ketch.errors import KetchError
from ketch.records import decompress

def resident_peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

with open(sys.argv[2], "rb") as file:
    data = file.read()
before = resident_peak()
try:
    decompress(int(sys.argv[1]), data, {LIMIT})
except KetchError as error:
    print(type(error).__name__, resident_peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of resident memory is read from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_bounded_memory(name: str, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(BOMBS[name]())
    assert bomb.stat().st_size < 16 * MB
    codec = CODECS[name.partition("_")[0]]
    run = subprocess.run(
        [sys.executable, "-c", PROBE, str(codec), str(bomb)], capture_output=True, text=True, check=True
    )
    verdict, growth = run.stdout.split()
    assert verdict == ("CorruptRecord" if name == "zstd_widest_window" else "RecordTooLarge")
    assert int(growth) < 2 * LIMIT + 4 * MB
