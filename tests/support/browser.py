"""A real browser for the console: the system's Chromium without a window, driven by its own chromedriver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ketch import eventually


def missing() -> str:
    """What keeps this machine from it; empty where nothing does."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "the package selenium is not installed"
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"there is no {' and no '.join(programs)} (Debian: chromium, chromium-driver)" if programs else ""


@contextmanager
def chromium(profile: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """A selenium driver, which is gone at the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",  # which does not run as root
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
        "--force-color-profile=srgb",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        *(["--force-dark-mode"] if dark else []),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def complaints(driver: Any) -> list[str]:
    """What the browser has to say against the pages so far: errors of scripts, and what their policy has refused."""
    said = driver.get_log("browser")
    return [entry["message"] for entry in said if entry["level"] == "SEVERE" or "Content Security" in entry["message"]]


def text_of(driver: Any, selector: str) -> str:
    """The text of the first element; empty while there is none."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.by import By

    try:
        found = driver.find_elements(By.CSS_SELECTOR, selector)
        return str(found[0].text) if found else ""
    except StaleElementReferenceException:  # a list that was read again
        return ""


def wait_for(driver: Any, selector: str, text: str, timeout: float = 60.0) -> None:
    """Waits until the element has exactly this text."""
    eventually(lambda: text_of(driver, selector) == text, timeout, f"{selector} to be {text!r}")
