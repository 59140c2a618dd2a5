"""Static files: ours and plotly's, addressed with a hash, so that a browser keeps them for good."""

import gzip
import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from lossbench.service.contract.errors import MissingPackageError, NotFoundError

STATIC = Path(__file__).with_name("static")
PLOTLY = "plotly.min.js"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOR_GOOD = "public, max-age=31536000, immutable"
GZIP_LEVEL = 6
SMALLEST_GZIPPED = 1024

router = APIRouter(include_in_schema=False)


class Asset(NamedTuple):
    """One static file, as it is and compressed."""

    body: bytes
    gzipped: bytes
    media_type: str
    version: str


def _path(name: str) -> Path:
    if name != PLOTLY:
        return STATIC / name
    # find_spec does not import plotly, which would cost half a second
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise MissingPackageError("plotly is not installed; pip install plotly")
    return Path(spec.origin).parent / "package_data" / PLOTLY


@cache
def _names() -> frozenset[str]:
    return frozenset(path.name for path in STATIC.iterdir() if path.suffix in TYPES) | {PLOTLY}


@cache
def _body(name: str) -> bytes:
    return _path(name).read_bytes()


@cache
def _version(name: str) -> str:
    return hashlib.sha256(_body(name)).hexdigest()[:12]


@cache
def load(name: str) -> Asset:
    """A static file by its name. Raises NotFoundError."""
    if name not in _names():
        raise NotFoundError(f"there is no static file {name!r}")
    body = _body(name)
    # mtime=0: the same bytes from every start
    gzipped = gzip.compress(body, GZIP_LEVEL, mtime=0)
    return Asset(body, gzipped, TYPES[Path(name).suffix], _version(name))


def url(name: str) -> str:
    """The address of a static file, with the hash of its content."""
    return f"/static/{name}?v={_version(name)}"


@router.get("/static/{name}")
def static_file(request: Request, name: str, v: str = "") -> Response:
    """A static file; kept for good under its hash, checked each time without it."""
    asset = load(name)
    etag = f'"{asset.version}"'
    headers = {
        "Cache-Control": FOR_GOOD if v == asset.version else "no-cache",
        "ETag": etag,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    compress = "gzip" in request.headers.get("accept-encoding", "")
    if compress and len(asset.body) >= SMALLEST_GZIPPED:
        headers["Content-Encoding"] = "gzip"
        return Response(asset.gzipped, media_type=asset.media_type, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)


@router.get("/favicon.ico")
def favicon() -> Response:
    """The icon, also where browsers look for it unasked."""
    asset = load("favicon.svg")
    return Response(asset.body, media_type=asset.media_type)
