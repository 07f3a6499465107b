"""The keys of an issuer of tokens, from an https URL or a file, read in a thread and kept.

They are read again when they are old, and when a token names a key that is not among them, but then at most once in ten
seconds. Where that fails, the keys from before count on, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from http.client import HTTPException
from typing import IO, Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ketch.errors import KetchError
from ketch.security.oauth import Keys, read_keys

log = logging.getLogger(__name__)

_PAUSE_S = 10.0
_ANSWER_S = 5.0
_SIZE_MAX = 1 << 20


class NoKeys(KetchError):
    """The keys were never read yet, and cannot be read now: nobody's token can be looked at."""


class KeySet:
    """The keys at one URL.

    Args:
        url: https:// or file://.
        refresh_s: after so many seconds they are old.
    """

    def __init__(self, url: str, refresh_s: float) -> None:
        self._url, self._refresh_s = url, refresh_s
        self._keys: Keys | None = None
        self._read = self._tried = -float("inf")  # when they were, by the monotonic clock
        self._one_at_a_time = asyncio.Lock()

    async def get(self, kid: str | None) -> Keys:
        """The keys, among them `kid` if there is such a key.

        Raises:
            NoKeys: there are none yet.
        """
        if self._wanting(kid):
            async with self._one_at_a_time:
                if self._wanting(kid):
                    await self._load()
        if self._keys is None:
            raise NoKeys(f"the keys at {self._url} cannot be read, see above")
        return self._keys

    def _wanting(self, kid: str | None) -> bool:
        now = time.monotonic()
        if now - self._tried < _PAUSE_S and self._read != self._tried:  # it has just failed
            return False
        if self._keys is None or now - self._read >= self._refresh_s:
            return True
        return kid is not None and kid not in self._keys and now - self._tried >= _PAUSE_S

    async def _load(self) -> None:
        self._tried = time.monotonic()
        try:
            text = await asyncio.get_running_loop().run_in_executor(None, _fetch, self._url)
            self._keys = read_keys(text)
            self._read = self._tried
        except (OSError, HTTPException, ValueError) as error:
            log.warning("the keys at %s cannot be read: %s", self._url, error)


class _NoRedirects(HTTPRedirectHandler):
    """Who signs tokens is decided by the URL of the setting, and by no other one."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        return None


def _fetch(url: str) -> str:
    """Raises OSError, HTTPException or ValueError."""
    with build_opener(_NoRedirects).open(url, timeout=_ANSWER_S) as answer:
        text: bytes = answer.read(_SIZE_MAX + 1)
    if len(text) > _SIZE_MAX:
        raise ValueError(f"more than {_SIZE_MAX} bytes")
    return text.decode()
