"""How many may wait, whom a full server still lets in, and when it tells others to come back."""

import asyncio
from collections import Counter

import httpx
import pytest

from parkway.api.admission import Admission
from parkway.errors import Overloaded
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor

HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
SLOTS = 4
"""Of the fake door."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(admission: Admission, client: str, chats: int, *, ended: int = 0, **open_chats: int) -> int:
    """In how many seconds to come back; 0 if it is let in."""
    try:
        admission.admit(client, chats, Counter(open_chats), ended)
    except Overloaded as failure:
        return failure.retry_seconds
    return 0


def test_there_is_room_for_slots_and_queue() -> None:
    admission = Admission(4, 6)
    assert not refused(admission, "a", 1, a=9)
    assert not refused(admission, "a", 3, a=7)
    assert refused(admission, "a", 4, a=7)
    assert refused(admission, "a", 1, a=10)


def test_more_chats_than_there_is_room_come_in_where_nobody_is() -> None:
    admission = Admission(4, 0)
    assert not refused(admission, "a", 9)
    assert refused(admission, "a", 9, a=1)


def test_a_full_queue_lets_in_who_has_less_than_its_part() -> None:
    admission = Admission(4, 16)
    assert not refused(admission, "b", 1, a=20)
    assert not refused(admission, "b", 1, a=20, b=9)
    assert refused(admission, "b", 1, a=20, b=10)
    assert refused(admission, "a", 1, a=20, b=10)
    assert not refused(admission, "c", 6, a=20, b=10)
    assert refused(admission, "c", 7, a=20, b=10)


def test_twice_the_room_is_never_exceeded() -> None:
    admission = Admission(2, 2)
    assert not refused(admission, "h", 1, a=4, b=1, c=1, d=1)
    assert refused(admission, "h", 1, a=4, b=1, c=1, d=1, e=1)


def test_comes_back_when_so_many_will_have_ended() -> None:
    clock = Clock()
    admission = Admission(2, 2, clock)
    ended = 50
    for _ in range(30):  # a chat ends every two seconds
        refused(admission, "a", 1, ended=ended, a=3)
        clock.now += 2
        ended += 1
    assert refused(admission, "a", 1, ended=ended, a=4) == 2
    assert refused(admission, "a", 3, ended=ended, a=4) == 6


def test_the_pace_is_that_of_the_last_minute_in_which_all_slots_were_taken() -> None:
    clock = Clock()
    admission = Admission(2, 2, clock)
    refused(admission, "a", 1, ended=0, a=2)
    clock.now += 1000  # nobody asks
    refused(admission, "a", 1, ended=1, a=1)
    assert refused(admission, "a", 1, ended=1, a=4) == 1
    clock.now += 10
    assert refused(admission, "a", 1, ended=3, a=4) == 5
    for _ in range(70):  # then they end ever faster
        clock.now += 1
        refused(admission, "a", 1, ended=3, a=4)
    assert refused(admission, "a", 1, ended=63, a=4) == 1


def test_at_most_ten_minutes() -> None:
    clock = Clock()
    admission = Admission(1, 0, clock)
    refused(admission, "a", 1, a=1)
    clock.now += 50
    assert refused(admission, "a", 100, a=1) == 600


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/chat/completions", "rate_limit_error"), ("/v1/messages", "rate_limit_error")]
)
async def test_one_too_many(live: Connect, path: str, kind: str) -> None:
    door = FakeDoor("abc", paced=True)
    async with live(door, max_queue=1) as http, asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(http.post(path, json=HI)) for _ in range(SLOTS + 1)]
        while len(door.asked) < SLOTS + 1:
            await asyncio.sleep(0)
        answer = await http.post(path, json=HI)
        page = (await http.get("/metrics")).text
        assert answer.status_code == 429
        assert answer.json()["error"]["type"] == kind
        assert "there is room for 5" in answer.json()["error"]["message"]
        assert 1 <= int(answer.headers["retry-after"]) <= 600
        assert 'parkway:rejected_requests_total{model_name="toy",reason="queue"} 1.0' in page
        door.step(3)
        assert [(await each).status_code for each in asked] == [200] * (SLOTS + 1)
        again = tasks.create_task(http.post(path, json=HI))
        while not door.open:
            await asyncio.sleep(0)
        door.step(3)
        assert (await again).status_code == 200


async def test_one_clients_requests_keep_nobody_else_out(live: Connect) -> None:
    door = FakeDoor("abc", paced=True)
    async with live(door, max_queue=0, api_key=("a", "b")) as http, asyncio.TaskGroup() as tasks:

        def post(key: str) -> asyncio.Task[httpx.Response]:
            return tasks.create_task(http.post("/v1/chat/completions", json=HI, headers={"x-api-key": key}))

        asked = [post("a") for _ in range(SLOTS)]
        while len(door.asked) < SLOTS:
            await asyncio.sleep(0)
        assert (await post("a")).status_code == 429
        asked.append(post("b"))
        while len(door.asked) < SLOTS + 1:
            await asyncio.sleep(0)
        door.step(3)
        assert [(await each).status_code for each in asked] == [200] * (SLOTS + 1)
