"""A timeline as a picture: a lane for each slot, coloured by state, as high as the chat has tokens. Reads no file."""

from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

from simulate.timeline import Stretch, Timeline

WIDTH = 1600
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 70, 40
LANE, GAP = 80, 14
"""Pixels."""

COLOURS = {
    "prefill": "#4c78a8",
    "decode": "#54a24b",
    "preempting": "#f2b134",
    "preempted": "#d9534f",
    "restoring": "#b279a2",
    "replaying": "#72b7b2",
}
UNKNOWN = "#888888"
PALE = 0.75
"""How far a lane's ground is from its colour to white."""
INK, LINE = "#222222", "#cccccc"
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Seconds between two marks of the time axis."""
MOST_TICKS = 16


def size(slots: int) -> tuple[int, int]:
    """Of the picture, in pixels."""
    return WIDTH, TOP + BOTTOM + slots * (LANE + GAP)


def draw(timeline: Timeline) -> Image.Image:
    """The picture. Its width is the whole time, whatever that is."""
    image = Image.new("RGB", size(len(timeline.slots)), "white")
    _Picture(image, timeline).paint()
    return image


class _Picture:
    def __init__(self, image: Image.Image, timeline: Timeline) -> None:
        self._pen = ImageDraw.Draw(image)
        self._font = ImageFont.load_default(13)
        self._timeline = timeline
        self._bottom = image.height - BOTTOM
        self._scale = (WIDTH - LEFT - RIGHT) / (timeline.seconds or 1.0)
        self._most = timeline.most_tokens

    def paint(self) -> None:
        self._title()
        self._axis()
        for index, stretches in enumerate(self._timeline.slots):
            floor = TOP + (index + 1) * (LANE + GAP) - GAP
            for stretch in stretches:
                self._stretch(stretch, floor)
            self._pen.line((LEFT, floor, WIDTH - RIGHT, floor), LINE)
            self._pen.text((10, floor - LANE / 2), f"slot {index}", INK, self._font, anchor="lm")
            self._names(stretches, floor)

    def _title(self) -> None:
        header, most = self._timeline.header, f"a lane is {self._most:,} tokens high"
        self._pen.text((10, 20), f"{header.model}: {most}", INK, self._font, anchor="lm")
        x = 10
        for state, colour in COLOURS.items():
            self._pen.rectangle((x, 40, x + 14, 54), colour)
            self._pen.text((x + 20, 47), state, INK, self._font, anchor="lm")
            x += 110

    def _axis(self) -> None:
        seconds = self._timeline.seconds
        step = next((tick for tick in TICKS if seconds / tick <= MOST_TICKS), TICKS[-1])
        for number in range(int(seconds / step) + 1):
            x = self._x(number * step)
            self._pen.line((x, TOP, x, self._bottom), LINE)
            self._pen.text((x, self._bottom + 14), f"{number * step:g} s", INK, self._font, anchor="mm")

    def _stretch(self, stretch: Stretch, floor: int) -> None:
        colour = COLOURS.get(stretch.state, UNKNOWN)
        left, right = self._x(stretch.start), max(self._x(stretch.start) + 1, self._x(stretch.end))
        self._pen.rectangle((left, floor - LANE, right, floor), _pale(colour))
        for (start, tokens), (end, _) in pairwise([*stretch.points, (stretch.end, 0)]):
            top = floor - LANE * tokens / self._most
            self._pen.rectangle((self._x(start), top, max(self._x(start) + 1, self._x(end)), floor), colour)

    def _names(self, stretches: list[Stretch], floor: int) -> None:
        """Each chat's number where it begins, and its tokens where it ends."""
        for before, stretch, after in zip([None, *stretches], stretches, [*stretches[1:], None], strict=False):
            if before is None or before.request_id != stretch.request_id:
                place = self._x(stretch.start) + 4, floor - LANE + 8
                self._pen.text(place, f"#{stretch.request_id}", INK, self._font, anchor="lm")
            if after is None or after.request_id != stretch.request_id:
                place = self._x(stretch.end) - 4, floor - 9
                self._pen.text(place, f"{stretch.points[-1][1]:,}", INK, self._font, anchor="rm")

    def _x(self, seconds: float) -> float:
        return LEFT + seconds * self._scale


def _pale(colour: str) -> tuple[int, ...]:
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return tuple([round(channel + (255 - channel) * PALE) for channel in channels])
