"""The buffers of Arrow arrays as the kernels take and return them; nothing here needs pyarrow."""

from __future__ import annotations

from typing import Any, TypeAlias

Buffer: TypeAlias = Any
"""Whatever has Python's buffer protocol."""

BinaryColumn: TypeAlias = tuple[Buffer | None, int, Buffer, Buffer]
"""Validity bits (None: no null), number of nulls, int32 offsets, data."""

Columns: TypeAlias = tuple[int, Buffer, Buffer, BinaryColumn, BinaryColumn, Buffer, int, BinaryColumn, BinaryColumn]
"""Rows, int64 offsets and timestamps, keys, values, int32 offsets into the headers, their number, names, contents."""

ListBuffers: TypeAlias = tuple[Buffer | None, int, Buffer]
"""Validity bits (None: no null), the bit of the first element, int32 offsets from the first element on."""

BinaryBuffers: TypeAlias = tuple[Buffer | None, int, Buffer, Buffer]
"""As :data:`ListBuffers`, and the data."""
