"""Compactions: kafka.log:type=LogCleaner and LogCleanerManager."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from ketch.metrics.records import topics

_compactions = Counter("ketch_log_cleaner_runs", "Compactions of a partition", ["topic"])
_compacted = Counter("ketch_log_cleaner_records_removed", "Records that compaction removed", ["topic"])
_recopied = Gauge("ketch_log_cleaner_recopy_percent", "Records of the last compaction that stayed")
_clean_time = Gauge("ketch_log_cleaner_max_clean_time_seconds", "Longest compaction since the start")
_table_used = Gauge("ketch_log_cleaner_max_buffer_utilization_percent", "Fullest log_cleaner_dedupe_buffer_size so far")
_dirty = Gauge("ketch_log_cleaner_max_dirty_percent", "Dirtiest compacted partition at the last look")
_uncleanable = Gauge("ketch_log_cleaner_uncleanable_partitions", "Partitions whose compaction failed at the last look")
_looked = Gauge("ketch_log_cleaner_last_run_timestamp_seconds", "When was last looked for what to compact")

_longest = _fullest = 0.0


def compacted(topic: str, before: int, after: int, seconds: float, used: float) -> None:
    """A partition was compacted.

    Args:
        before, after: its records.
        used: which part of the memory for keys was needed.
    """
    global _longest, _fullest
    _longest, _fullest = max(_longest, seconds), max(_fullest, used)
    _compactions.labels(topics[topic]).inc()
    _compacted.labels(topics[topic]).inc(before - after)
    _recopied.set(100 * after / before if before else 0)
    _clean_time.set(_longest)
    _table_used.set(100 * _fullest)


def cleaner_looked(dirtiest: float, failed: int) -> None:
    """All partitions were looked at."""
    _dirty.set(100 * dirtiest)
    _uncleanable.set(failed)
    _looked.set_to_current_time()
