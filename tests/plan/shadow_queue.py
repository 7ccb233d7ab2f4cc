"""Who waits for a slot, and who gets the next one: slots shared out evenly among clients, in turn."""

from collections import Counter

from .shadow_chat import Chat


class Queue:
    """The line for slots as it should be. `arrived` is the shadow's own list, which others cut."""

    def __init__(self, slots: int, arrived: list[Chat]) -> None:
        self._slots = slots
        self._arrived = arrived
        self._lined: list[Chat] = []
        self._came: dict[Chat, tuple[int, float]] = {}
        self._asks: dict[str, int] = {}
        """Since when each client has waited for its next turn."""
        self._turns: dict[str, int] = {}
        self._events = 0

    @property
    def new(self) -> list[Chat]:
        """Those that wait for room and not for a slot, in the order in which they came to do so."""
        return [chat for chat in self._lined if chat in self._arrived]

    def admit(self, inside: list[Chat], now: float) -> None:
        for chat in self._arrived:
            if chat not in self._came:
                self._events += 1
                if not any(other.request.client == chat.request.client for other in self._waiting):
                    self._asks[chat.request.client] = self._events
                self._came[chat] = self._events, now
        while len(inside) + len(new := self.new) < self._slots and len(new) < len(self._arrived):
            self._admit_one(inside + new)

    @property
    def _waiting(self) -> list[Chat]:
        """Those that wait for a slot, and that the planner has seen."""
        return [chat for chat in self._arrived if chat in self._came and chat not in self._lined]

    def _admit_one(self, inside: list[Chat]) -> None:
        chats = Counter(chat.request.client for chat in inside)
        clients = {chat.request.client for chat in self._waiting}
        client = min(clients, key=lambda each: (chats[each], self._asks[each]))
        self._check(client, clients, chats)
        own = [chat for chat in self._waiting if chat.request.client == client]
        self._lined.append(min(own, key=self._place))
        self._events += 1
        self._turns[client] = self._asks[client] = self._events

    def _check(self, client: str, clients: set[str], chats: Counter[str]) -> None:
        """Fairness, outright: nobody has a turn while somebody waits who has fewer chats; nor a second turn before one
        who has no more, and has waited since before the first."""
        for other in clients - {client}:
            assert chats[other] >= chats[client], "a client with more chats was let in"
            again = self._turns.get(client, 0) > self._asks[other]
            assert not again or chats[other] > chats[client], "a client had two turns, and another none"

    def _place(self, chat: Chat) -> tuple[float, int]:
        came, at = self._came[chat]
        return at + 30 * chat.request.priority, came
