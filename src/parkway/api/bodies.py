"""What the fields of several bodies have in common, and those that every answer can be asked for with. Knows no
endpoint."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from parkway.config import Notices
from parkway.errors import BadRequest

MAX_CHOICES = 128
MAX_ANSWERS = 2048
"""Most answers, prompts times choices, of one request."""


def unicode_text(value: str) -> str:
    """Raises ValueError for half of a surrogate pair, which JSON can spell and no tokenizer takes."""
    value.encode()
    return value


Text = Annotated[str, AfterValidator(unicode_text)]


class Body(BaseModel):
    """Types are exact: "1" is no number, 1 is no switch."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Asked(Body):
    """The fields of every request for answers. Unknown ones are ignored; see `refuse`."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    notices: Notices | None = None
    sse_ping_interval: Annotated[int, Field(ge=-1, lt=2**31)] | None = None

    def refuse(self, neutral: dict[str, tuple[Any, ...]]) -> None:
        """Raises BadRequest for a field that would change the answer and can't be honoured, unless its value asks for
        nothing: null, or one of those listed."""
        extra = self.model_extra or {}
        for name, values in neutral.items():
            value = extra.get(name)
            if value is not None and not any(_same(value, each) for each in values):
                raise BadRequest(name, f"{name} is not supported{_only(values)}")


def _same(value: Any, other: Any) -> bool:
    """Equal, where true is not 1."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _only(values: tuple[Any, ...]) -> str:
    return f"; leave it out or send {values[0]!r}" if values else ""
