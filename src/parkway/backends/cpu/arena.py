"""Activations of a recorded program and where they lie: values that never live together share memory."""

from parkway.backends.cpu.library import ROW_TILE, Memory, Rows, aligned


class Value:
    """Rows of `width` floats that an instruction makes, and their int8 form where some matrix wants it."""

    def __init__(self, width: int, on_logit_rows: bool = False) -> None:
        self.width = width
        self.on_logit_rows = on_logit_rows
        self.quantised = False
        self.quantised_by_producer = False
        self.address = 0
        self.rows = Rows(k=width)

    def parts(self, rows: int) -> list[tuple[str, int]]:
        """Fields of `Rows` with their bytes."""
        floats = [("f", rows * self.width * 4)]
        blocks = aligned(rows, ROW_TILE) * (self.width // 32)
        scales = [("q", blocks * 32), ("d", blocks * 4), ("s", blocks * 4), ("sum", blocks * 4)]
        return floats + scales if self.quantised else floats

    def settle(self, address: int, rows: int) -> None:
        self.address = address
        for name, size in self.parts(rows):
            setattr(self.rows, name, address)
            address += aligned(size)

    def size_bytes(self, rows: int) -> int:
        return sum(aligned(size) for _, size in self.parts(rows))


def place(spans: list[tuple[list[Value], list[Value]]], max_rows: int, max_logit_rows: int) -> Memory:
    """Gives each value of a program an address. `spans`: what each instruction reads and writes, in order.

    First fit over the offsets that are free from the value's first instruction to its last. Returns the memory.
    """
    life = _lifetimes(spans)
    placed: list[tuple[int, int, Value]] = []
    for value, (born, dies) in life.items():
        rows = max_logit_rows if value.on_logit_rows else max_rows
        busy = sorted(
            (at, at + size) for at, size, other in placed if life[other][1] >= born and life[other][0] <= dies
        )
        placed.append((_first_gap(busy, value.size_bytes(rows)), value.size_bytes(rows), value))
    memory = Memory(max(at + size for at, size, _ in placed), "activations")
    for at, _, value in placed:
        value.settle(memory.address + at, max_logit_rows if value.on_logit_rows else max_rows)
    return memory


def _lifetimes(spans: list[tuple[list[Value], list[Value]]]) -> dict[Value, tuple[int, int]]:
    life: dict[Value, tuple[int, int]] = {}
    for i, (reads, writes) in enumerate(spans):
        for value in [*writes, *reads]:
            life[value] = (life.get(value, (i, i))[0], i)
    return life


def _first_gap(busy: list[tuple[int, int]], size: int) -> int:
    at = 0
    for start, end in busy:
        if start - at >= size:
            break
        at = max(at, end)
    return at
