"""/v1/embeddings, and llama-server's own /embedding and /embeddings. Knows no token and no state of a model."""

from collections.abc import Sequence

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.answer import Answer
from parkway.api.bodies import MAX_ANSWERS
from parkway.api.choice import Prompt
from parkway.api.embeddings_body import EmbeddingsBody
from parkway.api.embeddings_form import EmbeddingsForm, EmbeddingsList
from parkway.api.off_loop import off_loop
from parkway.api.openai import serving_of
from parkway.api.responses import WholeAnswer
from parkway.api.serving import Serving
from parkway.errors import BadRequest
from parkway.request import Pooling, SamplingParams

router = APIRouter()


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingsBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    answer = await _begun(serving, body)
    return WholeAnswer(answer, EmbeddingsForm(answer, body, serving.model_name), serving.leave)


@router.post("/embedding")
@router.post("/embeddings")
async def llama_embeddings(body: EmbeddingsBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    answer = await _begun(serving, body)
    return WholeAnswer(answer, EmbeddingsList(answer, body), serving.leave)


async def _begun(serving: Serving, body: EmbeddingsBody) -> Answer:
    serving.check_model(body.model)
    width = serving.door.facts.embedding_width
    if (body.dimensions or 0) > width:
        raise BadRequest("dimensions", f"dimensions is {body.dimensions}, but this model's embeddings have {width}")
    if len(body.input) > MAX_ANSWERS:
        raise BadRequest("input", f"input has more than {MAX_ANSWERS} texts")
    sampling = SamplingParams(
        max_tokens=0, embed=_pooling(serving), cache_prompt=serving.settings.defaults.cache_prompt == "on"
    )
    prompts = await off_loop(body.input, _prompts, serving, body.input)
    return serving.begin(prompts, 1, sampling, priority=body.priority or 0)


def _prompts(serving: Serving, asked: Sequence[str | list[int]]) -> list[Prompt]:
    whole = serving.text.tokenizer.whole
    ids = [whole(each) if isinstance(each, str) else each for each in asked]
    return [serving.prompt(each, "input") for each in ids]


def _pooling(serving: Serving) -> Pooling:
    """Raises BadRequest where neither the settings nor the file say one that there is."""
    asked = serving.settings.pooling
    if asked != "auto":
        return asked
    if serving.text.pooling is None:
        raise BadRequest("input", "this model's file asks for a pooling that is not supported; see --pooling")
    return serving.text.pooling
