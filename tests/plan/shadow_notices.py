"""What clients are told: `preempted` and `resumed` in turn, each when it is true and before any token behind it."""

from collections.abc import Iterable

from parkway.request import Notice

from .shadow_chat import Chat, find


def hear(notices: list[tuple[int, Notice]], chats: Iterable[Chat], now: float) -> None:
    """Notices of one moment, before what is planned then is in flight."""
    expected: Chat | None = None
    for at, (request_id, notice) in enumerate(notices):
        chat = find(chats, request_id)
        assert chat, "somebody is told who has ended or has not started"
        if expected:
            assert (chat, notice.state) == (expected, "recomputed"), "nobody says that it was computed again"
        if notice.state == "preempted":
            _left(chat)
        else:
            assert notice.waited_ms == round(1000 * (now - (chat.since or 0))), "not the time that it was out"
        if notice.state == "resumed":
            assert chat.told, "resumed without preempted"
            chat.told = False
        expected = None
        if notice.state == "recomputed":
            assert chat.dropped, "nothing of it was computed again"
            chat.dropped = False
        elif notice.state == "resumed" and chat.dropped and not _leaves_again(notices[at + 1 :], request_id):
            expected = chat
    assert not expected, "nobody says that it was computed again"


def check_told(chats: Iterable[Chat]) -> None:
    for chat in chats:
        assert chat.away or not chat.told, "a chat is back, and nobody says so"
        assert chat.told or not chat.away or chat.flying, "a chat is out, and nobody says so"


def _left(chat: Chat) -> None:
    assert not chat.told, "preempted twice"
    assert not chat.flying, "preempted before its last token"
    chat.told = True


def _leaves_again(notices: list[tuple[int, Notice]], request_id: int) -> bool:
    return any(each == request_id and notice.state == "preempted" for each, notice in notices)
