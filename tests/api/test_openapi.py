"""The description of the API, and the page that says what this is."""

from typing import Any

import httpx
import pytest

from parkway import __version__
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor

PUBLIC = ("/", "/health", "/v1/health")


async def described(http: httpx.AsyncClient, **headers: str) -> dict[str, Any]:
    told: dict[str, Any] = (await http.get("/openapi.json", headers=headers)).json()
    return told


async def test_without_keys(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        told = await described(http)
    assert told["info"] == {"title": "Parkway", "version": __version__}
    assert "security" not in told
    assert "securitySchemes" not in told["components"]
    answers = told["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert answers.keys() == {"200", "400", "404", "413", "429", "503"}
    assert answers["200"]["content"].keys() == {"application/json", "text/event-stream"}
    assert told["paths"]["/tokenize"]["post"]["responses"]["200"]["content"].keys() == {"application/json"}
    assert told["paths"]["/metrics"]["get"]["responses"]["200"]["content"].keys() == {"text/plain"}
    assert "501" in told["paths"]["/infill"]["post"]["responses"]
    reference = answers["429"]["content"]["application/json"]["schema"]["$ref"]
    assert reference == "#/components/schemas/Error"
    assert told["components"]["schemas"]["Error"]["properties"]["error"]["required"] == ["message", "type"]
    assert "HTTPValidationError" not in str(told)


async def test_with_keys(within: Connect) -> None:
    async with within(FakeDoor(), api_key=("k",)) as http:
        told = await described(http, authorization="Bearer k")
    assert told["security"] == [{"bearer": []}, {"header": []}]
    schemes = told["components"]["securitySchemes"]
    assert schemes["bearer"] == {"type": "http", "scheme": "bearer"}
    assert schemes["header"] == {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
    assert "401" in told["paths"]["/v1/chat/completions"]["post"]["responses"]
    free = {path for path, each in told["paths"].items() for how in each.values() if how.get("security") == []}
    assert free == set(PUBLIC)


async def test_everything_that_it_points_to_is_there(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        told = await described(http)
    for name in _references(told):
        assert name in told["components"]["schemas"]


def _references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"].rpartition("/")[2]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(_references(value) for value in part.values()))
    return set().union(*map(_references, part)) if isinstance(part, list) else set()


async def test_the_first_page(within: Connect) -> None:
    async with within(FakeDoor(), api_key=("k",)) as http:
        told = (await http.get("/")).json()
    assert told == {"name": "Parkway", "version": __version__, "api": "/openapi.json", "health": "/health"}


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_no_page_loads_scripts_from_elsewhere(within: Connect, path: str) -> None:
    async with within(FakeDoor()) as http:
        assert (await http.get(path)).status_code == 404
