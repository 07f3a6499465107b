"""A person's path in a real browser: make a topic, find a record by its key, see the lag of a stopped consumer grow,
reset it, see it go to zero, delete the topic. And that every page is without complaint of the browser.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.support import browser, http
from tests.support.browser import text_of, wait_for
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

LIMIT = 60
WHY = browser.missing() or ("" if shutil.which("kcat") else "there is no kcat")
pytestmark = pytest.mark.skipif(bool(WHY), reason=f"no browser: {WHY}")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def kcat(server: KetchServer, topic: str, first: int, count: int) -> None:
    """Records with the keys k-FIRST and so on."""
    lines = "".join(f"k-{n}:value {n}\n" for n in range(first, first + count))
    command = ["kcat", "-b", server.bootstrap, "-P", "-t", topic, "-K:", "-p", "0"]
    subprocess.run(command, input=lines.encode(), check=True, timeout=LIMIT)


def find(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


def confirm(driver: Any, name: str) -> None:
    """Types the name, which is what the button waits for."""
    button = find(driver, ".confirm button")
    field = find(driver, "#confirm")
    if field.get_attribute("data-confirm"):
        assert not button.is_enabled()
    field.send_keys(name)
    assert button.is_enabled()
    button.click()


def test_a_persons_path(server: KetchServer, driver: Any) -> None:
    at = http.url(server)
    driver.get(at)
    wait_for(driver, "#live-state", "live")

    # make a topic
    driver.get(f"{at}/topics")
    find(driver, "a.button").click()
    find(driver, "#name").send_keys("walked")
    confirm(driver, "walked")
    wait_for(driver, "h1", "walked")

    # watch what kcat produces
    driver.find_element("link text", "Live tail").click()
    wait_for(driver, "#tail-state", "live")
    kcat(server, "walked", 0, 10)
    eventually(lambda: text_of(driver, "#tail").count("value ") == 10, LIMIT, "the tail to show ten records")

    # find the record by its key
    driver.find_element("link text", "Records").click()
    find(driver, "#key").send_keys("k-7")
    find(driver, "form.filter button").click()
    eventually(lambda: text_of(driver, "#records tbody td.key") == "k-7", LIMIT, "the record with the key")
    find(driver, "#records tbody a").click()
    wait_for(driver, "#value", "value 7")

    # a consumer reads all and stops; its lag grows
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "walkers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["walked"])
    assert len(consumer.consume(10, LIMIT)) == 10
    consumer.commit(asynchronous=False)
    driver.get(f"{at}/groups")
    eventually(lambda: "walkers" in text_of(driver, "#list"), LIMIT, "the group")
    driver.find_element("link text", "walkers").click()
    wait_for(driver, "#state", "Stable")
    wait_for(driver, "td.lag", "0")
    consumer.close()
    wait_for(driver, "#state", "Empty")
    kcat(server, "walked", 10, 25)
    wait_for(driver, "td.lag", "25")
    kcat(server, "walked", 35, 7)
    wait_for(driver, "td.lag", "32")  # the list is read again by itself

    # reset it, and see it go to zero
    driver.find_element("css selector", "select[name=to]").send_keys("latest")
    find(driver, "form.filter button").click()
    wait_for(driver, "h1", "Reset to latest")
    cells = [cell.text for cell in driver.find_elements("css selector", "#moves tbody td")]
    assert (cells[0], cells[4], cells[5]) == ("walked", "32", "0")
    confirm(driver, "walkers")
    wait_for(driver, "h1", "walkers")
    wait_for(driver, "td.lag", "0")

    # delete the topic
    driver.get(f"{at}/topic?name=walked")
    driver.find_element("link text", "Delete").click()
    confirm(driver, "walked")
    wait_for(driver, "h1", "Topics")
    eventually(lambda: "walked" not in text_of(driver, "#list"), LIMIT, "the topic to be gone")
    assert browser.complaints(driver) == []


def test_files_of_an_archive_come_by_themselves(server: KetchServer, driver: Any, tmp_path: Path, topic: str) -> None:
    """The page renews itself once the table has been read; its tabs and pages lead to each other."""
    pytest.importorskip("pyiceberg", reason="the spark extra is not installed")
    from tests.support.archives import Job

    at = http.url(server)
    with Kafka(server.port) as kafka:
        kafka.create(topic, partitions=2, offset_ids="dense")
        kcat(server, topic, 0, 12)
        job = Job(tmp_path / "lake", kafka, server.redis(), topic)
        job.run(files=2)
        job.archive.close()
    driver.get(f"{at}/archive?q={topic}")
    driver.find_element("link text", topic).click()
    wait_for(driver, "#partitions tbody td:nth-child(3)", "12")
    driver.find_element("link text", "Files").click()
    wait_for(driver, "#files tbody tr:last-child td:nth-child(3)", "11")
    assert text_of(driver, "#files tbody tr:last-child td:last-child").startswith("data/partition=0/")
    driver.find_element("link text", "Snapshots").click()
    wait_for(driver, "#snapshots tbody tr:first-child td:last-child", "12")
    for width in (1280, 380):
        driver.set_window_size(width, 900)
        for tab in ("partitions", "files", "snapshots"):
            driver.get(f"{at}/archive/topic?name={topic}&tab={tab}")
            wide = driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, tab
    assert browser.complaints(driver) == []


@pytest.mark.parametrize("width", [1280, 380])
def test_pages_are_without_complaint_and_no_wider_than_the_window(server: KetchServer, driver: Any, width: int) -> None:
    at = http.url(server)
    kcat(server, "looked.at", 0, 60)
    driver.set_window_size(width, 900)
    for path in (
        *("/", "/topics", "/groups", "/archive", "/spark", "/clients", "/settings", "/topics/new", "/nowhere"),
        *(f"/topic?name=looked.at&tab={tab}" for tab in ("partitions", "configs", "tail")),
        "/spark/reading?name=some-query&topic=looked.at",
        *("/topic/records?name=looked.at", "/topic/record?name=looked.at", "/change?action=produce&name=looked.at"),
    ):
        driver.get(at + path)
        wide = driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, path
    found = [line for line in browser.complaints(driver) if "/nowhere" not in line]
    assert found == []


def test_keys(server: KetchServer, driver: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    driver.get(http.url(server))
    ActionChains(driver).send_keys("gt").perform()
    wait_for(driver, "h1", "Topics")
    ActionChains(driver).send_keys("/").perform()
    assert driver.switch_to.active_element.get_attribute("id") == "q"
    ActionChains(driver).send_keys("no such topic").perform()
    eventually(lambda: "No topic has these words" in text_of(driver, "#list"), LIMIT, "the search without a button")
    assert driver.current_url.endswith("/topics?q=no+such+topic") or "q=no%20such%20topic" in driver.current_url


def test_the_theme_that_was_chosen_stays(server: KetchServer, driver: Any) -> None:
    driver.set_window_size(1280, 900)
    driver.get(http.url(server))
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = driver.execute_script(ground)
    find(driver, "#theme").click()
    after = driver.execute_script(ground)
    assert after != before
    driver.get(f"{http.url(server)}/topics")
    assert driver.execute_script(ground) == after
