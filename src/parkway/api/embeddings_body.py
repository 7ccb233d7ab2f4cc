"""The body of a request for embeddings. Knows no model."""

from typing import Annotated, Literal

from pydantic import AliasChoices, ConfigDict, Field

from parkway.api.bodies import Body
from parkway.api.completion_body import Prompts


class EmbeddingsBody(Body):
    """`content` is llama-server's name of `input`. Unknown fields are ignored."""

    model_config = ConfigDict(extra="allow")

    input: Annotated[Prompts, Field(validation_alias=AliasChoices("input", "content"))]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    embd_normalize: Literal[2] | None = None
    """llama-server's: 2 is the Euclidean length."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
