"""The layouts by their names."""

from __future__ import annotations

from collections.abc import Mapping

from ketch.store.layouts.batch import BatchLayout
from ketch.store.layouts.layout import Layout
from ketch.store.layouts.record import RecordLayout

LAYOUTS: Mapping[str, Layout] = {"record": RecordLayout(), "batch": BatchLayout()}
