"""Which Iceberg catalog the archive lives in.

pyiceberg's own configuration decides (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__<NAME>__<PROPERTY>`): REST, Glue, Hive,
SQL, any that pyiceberg knows, with its FileIO's properties beside it. Where it has nothing under the name, the catalog
is `lake/catalog.db` (SQLite) with `lake/warehouse/` in the data directory.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config

from ketch.errors import ConfigError

NAMESPACE = "ketch"


def open_catalog(name: str, data_dir: Path) -> Catalog:
    """The catalog; the default one and its directory are made where they are missing.

    Raises:
        ConfigError: it cannot be opened, in one sentence.
    """
    try:
        properties = Config().get_catalog_config(name) or _default(data_dir)
        return load_catalog(name, **{key: str(value) for key, value in properties.items()})
    except OSError as error:
        raise ConfigError(f"The catalog in {data_dir / 'lake'} cannot be used: {error.strerror or error}.") from error
    except Exception as error:  # whatever its client raises
        raise ConfigError(f"The Iceberg catalog {name} cannot be opened: {first_line(error)}") from error


def identifier(topic: str) -> tuple[str, str]:
    """The table's name. A tuple: a topic's name may have dots."""
    return NAMESPACE, topic


def table_name(topic: str) -> str:
    """The same for people."""
    return f"{NAMESPACE}.{topic}"


def first_line(error: Exception) -> str:
    """What an error says, for a sentence of ours."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _default(data_dir: Path) -> dict[str, str]:
    lake = data_dir.absolute() / "lake"
    (lake / "warehouse").mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{quote(str(lake / 'catalog.db'))}?timeout=30",  # s that a commit waits for another
        "warehouse": f"file://{lake / 'warehouse'}",
    }
