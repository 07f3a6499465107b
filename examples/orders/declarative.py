"""Runs pipeline/ through `spark-pipelines`, once over everything that is in the topics."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

import pyarrow as pa
import pyarrow.parquet as pq

from examples.orders.services import Failure

_SOURCE = Path(__file__).parent / "pipeline"
_ROOT = Path(__file__).parent.parent.parent


def run(redis: str, home: Path, log: Path) -> None:
    """Fills the tables below `home` and the topics.

    Raises:
        Failure: it is not installed, or did not end well; its output is in `log`.
    """
    program = Path(sys.executable).parent / "spark-pipelines"
    if not program.exists() or not _has_connect():
        raise Failure('Declarative pipelines need pip install "ketch[pipelines]".')
    shutil.copytree(_SOURCE, home)
    spec = home / "spark-pipeline.yml"
    spec.write_text(Template(spec.read_text()).substitute(storage=(home / "storage").as_uri()))
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "ORDERS_REDIS": redis, "PYSPARK_PYTHON": sys.executable}
    command = [str(program), "run", "--spec", str(spec)]
    with log.open("wb") as output:
        done = subprocess.run(command, cwd=home, env=env, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise Failure(f"spark-pipelines ended with {done.returncode}: see {log}.")


def _has_connect() -> bool:
    try:
        import pyspark.sql.connect.session  # noqa: F401
    except ImportError:
        return False
    return True


def read(home: Path, name: str) -> pa.Table:
    """A table that `run` has filled."""
    return pq.read_table(home / "spark-warehouse" / name)
