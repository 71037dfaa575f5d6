"""Long work of the lab runs for one visitor at a time."""

import threading

import pytest

from kvplan.ui.lab_screens import parts


class Bar:
    """Where a page says how far it is; a stop of the page ends the run at the next word."""

    def __init__(self, stops=False):
        self.words = []
        self.spoke = threading.Event()
        self.stops = stops

    def progress(self, _percent, words):
        self.words.append(words)
        self.spoke.set()
        if self.stops:
            raise InterruptedError


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(parts, "WAIT_SECONDS", 0.01)


def test_a_second_visitor_waits_until_the_first_is_done_and_is_told():
    second, done = Bar(), threading.Event()

    def work():
        with parts._in_turn(second):
            done.set()

    with parts._in_turn(Bar()):
        waiting = threading.Thread(target=work)
        waiting.start()
        assert second.spoke.wait(10)
        assert not done.is_set()
    waiting.join(10)
    assert done.is_set()
    assert set(second.words) == {"Waiting for another visitor's run to end"}


def test_who_stops_while_waiting_holds_nobody_up():
    with parts._in_turn(Bar()), pytest.raises(InterruptedError), parts._in_turn(Bar(stops=True)):
        pass
    with parts._in_turn(Bar(stops=True)):
        pass


def test_work_that_fails_makes_room_for_the_next():
    with pytest.raises(ZeroDivisionError), parts._in_turn(Bar()):
        raise ZeroDivisionError
    with parts._in_turn(Bar(stops=True)):
        pass
