"""The layouts by their names."""

from __future__ import annotations

from collections.abc import Mapping

from ketch.store.batch_layout import BatchLayout
from ketch.store.layout import Layout
from ketch.store.record_layout import RecordLayout

LAYOUTS: Mapping[str, Layout] = {"record": RecordLayout(), "batch": BatchLayout()}
