"""What is left of a build: estimated by the plan, then by its units, and unknown where it is."""

from __future__ import annotations

import pytest

from pipelines.stages.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def after(pace: Pace, clock: Clock, units: int, total: int, each: float) -> Pace:
    """So many more units, each so many seconds after the one before it."""
    for _ in range(units):
        clock.now += each
        pace.finished(pace.done + 1, total)
    return pace


def test_the_plan_counts_down_until_there_is_a_unit(clock: Clock) -> None:
    pace = Pace(840.0, 10, 4, clock)
    assert str(pace) == "about 14 min left"
    clock.now += 240
    assert pace.left() == 600
    clock.now += 700
    assert pace.left() is None, "longer than planned: nobody knows"
    assert str(pace) == ""


def test_nothing_is_said_of_what_nobody_knows(clock: Clock) -> None:
    pace = Pace(None, 0, 2, clock)
    assert str(pace) == ""
    after(pace, clock, 1, 10, 30)
    assert pace.left() is None, "one of two at a time says nothing yet"
    after(pace, clock, 1, 10, 30)
    assert pace.left() == pytest.approx(8 * 30)


def test_a_slower_machine_than_planned_is_noticed(clock: Clock) -> None:
    pace = Pace(100.0, 100, 2, clock)  # a second a unit
    after(pace, clock, 40, 100, 10)
    left = pace.left()
    assert left is not None
    assert 400 < left <= 600


def test_a_warm_cache_is_noticed(clock: Clock) -> None:
    pace = Pace(3600.0, 100, 2, clock)  # 36 s a unit
    after(pace, clock, 1, 100, 0.5)
    first = pace.left()
    after(pace, clock, 30, 100, 0.5)
    later = pace.left()
    assert first is not None
    assert later is not None
    assert first > 3000, "one quick unit says little"
    assert later < 69 * 36 / 3


def test_a_cache_that_had_only_the_first_half_too(clock: Clock) -> None:
    pace = Pace(3600.0, 100, 2, clock)
    after(pace, clock, 50, 100, 0.5)
    after(pace, clock, 6, 100, 36)
    assert pace.left() == pytest.approx(44 * 36, rel=0.2)


def test_a_log_that_is_read_from_its_beginning_says_nothing_of_speed(clock: Clock) -> None:
    """Of a build that goes on: its units were finished long ago."""
    pace = Pace(3600.0, 100, 2, clock)
    after(pace, clock, 60, 100, 0.001)
    assert pace.left() == pytest.approx(40 * 36, rel=0.01)
    unknown = Pace(None, 0, 2, clock)
    after(unknown, clock, 60, 100, 0.001)
    assert unknown.left() is None


def test_the_last_unit_may_take_longer(clock: Clock) -> None:
    pace = after(Pace(100.0, 10, 1, clock), clock, 9, 10, 10)
    clock.now += 9
    left = pace.left()
    assert left is not None
    assert left < 2
    clock.now += 30
    assert pace.left() is None


def test_what_is_done_has_nothing_left(clock: Clock) -> None:
    assert after(Pace(100.0, 10, 1, clock), clock, 10, 10, 10).left() is None


def test_a_second_part_is_counted_anew(clock: Clock) -> None:
    pace = after(Pace(None, 0, 1, clock), clock, 5, 5, 2)
    clock.now += 1
    pace.finished(1, 50)
    after(pace, clock, 3, 50, 20)
    left = pace.left()
    assert left is not None
    assert left == pytest.approx(46 * 61 / 4, rel=0.1)


def test_the_rest_of_a_build_takes_no_longer_a_unit(clock: Clock) -> None:
    pace = after(Pace(3600.0, 100, 2, clock), clock, 1, 50, 36)  # half of it was finished before
    assert pace.left() == pytest.approx(49 * 36, rel=0.01)
