"""The TOML file of settings as a table. What its values mean is said by those who read them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ketch.errors import ConfigError


def read_file(path: Path) -> dict[str, Any]:
    """The file's table; ConfigError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None
