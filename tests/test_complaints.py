"""How often a connection's mistakes, or an outage, are said in the log."""

from __future__ import annotations

from ketch.complaints import Complaints


def test_what_goes_on_is_said_once() -> None:
    complaints = Complaints()
    assert [complaints.line("a", float(second)) for second in range(0, 300, 10)] == ["a"] + [None] * 29


def test_what_fails_again_after_it_went_well_is_said_again() -> None:
    complaints = Complaints()
    assert complaints.line("a", 0.0) == "a"
    complaints.over()
    assert complaints.line("a", 59.0) is None
    assert complaints.line("a", 60.0) == "a (left out since the last line: 1)"


def test_one_line_a_minute_whatever_the_texts() -> None:
    complaints = Complaints()
    lines = [complaints.line(f"Produce to t-{n % 7} refused", n / 20) for n in range(20 * 60 * 3)]
    said = [line for line in lines if line]
    assert len(said) == 3
    assert said[1] == "Produce to t-3 refused (left out since the last line: 1028)"


def test_another_text_after_a_minute() -> None:
    complaints = Complaints()
    assert [complaints.line("a", 0.0), complaints.line("b", 59.0), complaints.line("b", 60.0)] == [
        "a",
        None,
        "b (left out since the last line: 1)",
    ]
