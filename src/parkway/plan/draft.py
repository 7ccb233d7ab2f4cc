"""A step while it is being put together: the rows that are left of it, and up to which position each chat computes."""

from parkway.plan.slot import Slot


class Draft:
    """Starts with so many rows, and so many of them with logits. `ends` keeps the order in which chats were added."""

    def __init__(self, tokens: int, rows: int, chunk_tokens: int | None) -> None:
        self.ends: dict[Slot, int] = {}
        self._tokens_left = tokens
        self._rows_left = rows
        self._chunk_tokens = chunk_tokens

    def prefill_end(self, slot: Slot) -> int:
        """Up to which position a chat can prefill with the rows that are left, those with logits and all."""
        most = min(self._tokens_left, self._chunk_tokens or self._tokens_left)
        end = min(slot.length, slot.computed + most)
        owed = slot.scoring(end)
        if len(owed) > self._rows_left:
            return owed[self._rows_left]
        waits = slot.held or len(owed) == self._rows_left
        return end - 1 if slot.samples(end) and waits else end

    def decode(self, slot: Slot) -> None:
        """Adds the row for a chat's next token, of which there is one for every slot."""
        self.ends[slot] = slot.length
        self._tokens_left -= 1
        self._rows_left -= 1

    def prefill(self, slot: Slot, end: int) -> None:
        self.ends[slot] = end
        self._tokens_left -= end - slot.computed
        self._rows_left -= len(slot.scoring(end)) + slot.samples(end)

    def remove(self, slot: Slot) -> None:
        """Rows that this leaves over are not given to others: it is rare, and the step nearly full."""
        self.ends.pop(slot, None)
