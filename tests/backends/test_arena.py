"""Where activations lie: values that are needed at the same time never share a byte."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from parkway.backends.cpu.arena import Value, place
from parkway.backends.cpu.library import ALIGNMENT_BYTES

ROWS, LOGIT_ROWS = 5, 3
Spans = list[tuple[list[Value], list[Value]]]


@st.composite
def programs(draw: st.DrawFn) -> Spans:
    """Instructions that each read up to three values made before and write up to three new ones."""
    made: list[Value] = []
    spans: Spans = []
    for _ in range(draw(st.integers(1, 25))):
        reads = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        writes = [drawn_value(draw) for _ in range(draw(st.integers(1, 3)))]
        made += writes
        spans.append((reads, writes))
    return spans


def drawn_value(draw: st.DrawFn) -> Value:
    value = Value(32 * draw(st.integers(1, 9)), draw(st.sampled_from([False, True])))
    value.quantised = draw(st.sampled_from([False, True]))
    return value


def lives(spans: Spans) -> dict[Value, tuple[int, int]]:
    """First and last instruction of each value, found the slow way."""
    values = {value for reads, writes in spans for value in (*reads, *writes)}
    uses = {value: [i for i, span in enumerate(spans) if value in (*span[0], *span[1])] for value in values}
    return {value: (min(at), max(at)) for value, at in uses.items()}


def ranges(value: Value) -> list[tuple[int, int]]:
    """Where each part of a value lies, [begin, end)."""
    rows = LOGIT_ROWS if value.on_logit_rows else ROWS
    return [(address, address + size) for name, size in value.parts(rows) for address in [getattr(value.rows, name)]]


@given(programs())
def test_values_that_live_together_share_no_byte(spans: Spans) -> None:
    memory = place(spans, ROWS, LOGIT_ROWS)
    life = lives(spans)
    for value in life:
        for begin, end in ranges(value):
            assert memory.address <= begin < end <= memory.address + memory.size_bytes
            assert begin % ALIGNMENT_BYTES == 0
        assert all(not overlap(a, b) for a, b in combinations(ranges(value), 2))
    for one, other in combinations(life, 2):
        if life[one][0] <= life[other][1] and life[other][0] <= life[one][1]:
            assert not any(overlap(a, b) for a in ranges(one) for b in ranges(other))


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def test_a_value_that_nobody_needs_any_more_gives_its_place_away() -> None:
    first, second, third = Value(64), Value(64), Value(64)
    memory = place([([], [first]), ([first], [second]), ([second], [third])], ROWS, LOGIT_ROWS)
    assert third.address == first.address != second.address
    assert memory.size_bytes == 2 * ROWS * 64 * 4


def test_an_instruction_never_writes_over_what_it_reads() -> None:
    read, written = Value(32), Value(32)
    place([([], [read]), ([read], [written])], ROWS, LOGIT_ROWS)
    assert read.address != written.address


def test_a_quantised_value_has_room_for_bytes_scales_and_sums_of_whole_tiles_of_16_rows() -> None:
    value = Value(96)
    value.quantised = True
    assert dict(value.parts(2)) == {"f": 768, "q": 16 * 96, "d": 16 * 12, "s": 16 * 12, "sum": 16 * 12}
