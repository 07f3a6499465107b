"""The options of an archive job, and how they reach Spark's processes.

Each of these processes imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ketch.redis.blocking import Server
from ketch.spark.options import Topics

Ends: TypeAlias = dict[str, dict[str, int]]  # topic -> partition -> offset; as JSON has it


@dataclass(frozen=True, slots=True)
class Job:
    """One archive job.

    `topics` are names, empty for every topic. `tasks` is how many run at a time. With `whole` a batch takes all records
    that wait.
    """

    server: Server
    keyspace: str
    catalog: str
    data_dir: str
    topics: tuple[str, ...] = ()
    tasks: int = 1
    whole: bool = False

    @property
    def wanted(self) -> Topics:
        return Topics(names=self.topics) if self.topics else Topics(pattern=".*")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job runs: `once` up to the current end, or every `interval` seconds until it is stopped."""

    job: Job
    once: bool
    interval: float
    master: str


def to_options(job: Job, run: str) -> dict[str, str]:
    """The options of source and sink; `run` is different for every start of the job."""
    return {"job": pickle.dumps(job).hex(), "run": run}


def from_options(options: Mapping[str, str]) -> tuple[Job, str]:
    """The job and run that `to_options` was given."""
    job = pickle.loads(bytes.fromhex(options["job"]))
    assert isinstance(job, Job)
    return job, options["run"]
