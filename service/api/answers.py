"""Answers with a strong ETag: unchanged data costs a reader no body."""

import hashlib

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

REVALIDATE = "private, no-cache"
IMMUTABLE = "private, max-age=31536000, immutable"


def tagged(
    request: Request,
    model: BaseModel,
    cache_control: str = REVALIDATE,
    headers: dict[str, str] | None = None,
) -> Response:
    """The model as JSON with its ETag, or 304 where the reader has it already."""
    body = model.model_dump_json(by_alias=True).encode()
    return tagged_bytes(request, body, cache_control, headers)


def tagged_bytes(
    request: Request,
    body: bytes,
    cache_control: str = REVALIDATE,
    headers: dict[str, str] | None = None,
) -> Response:
    """A JSON text with its ETag, or 304 where the reader has it already."""
    digest = hashlib.sha256(body).hexdigest()[:32]
    # a strong tag names one sequence of bytes, and the gzip layer may send another one
    packed = "-gzip" if "gzip" in request.headers.get("accept-encoding", "") else ""
    tag = f'"{digest}{packed}"'
    sent = {"ETag": tag, "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    sent.update(headers or {})
    if _matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=sent)
    return Response(body, media_type="application/json", headers=sent)


def _matches(header: str, tag: str) -> bool:
    wanted = [part.strip().removeprefix("W/") for part in header.split(",")]
    return tag in wanted or wanted == ["*"]
