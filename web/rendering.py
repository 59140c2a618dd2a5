"""Jinja: the environment of all pages and how a page becomes a response."""

import json
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from lossbench.service.api.security import CSRF_FIELD, AuthMode
from lossbench.service.plots.report import COUNTED

from . import assets
from .alert_words import ALERT_WORDS
from .format import ENVIRONMENT_FACTS, FILTERS, GLYPHS, STATUS_WORDS
from .help import METRICS, flag_help, why


def json_block(value: Any) -> Markup:
    """JSON for a `<script type="application/json">`; no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # every sign that HTML knows was replaced above


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.filters["json_block"] = json_block
    environment.filters["flag_help"] = flag_help
    environment.globals.update(
        counted_grades=COUNTED,
        asset=assets.url,
        signs=GLYPHS,
        status_words=STATUS_WORDS,
        chip_facts=ENVIRONMENT_FACTS,
        why=why,
        alert_words=ALERT_WORDS,
        metrics=METRICS,
    )
    return environment


ENVIRONMENT = _environment()


def _viewer(request: Request) -> dict[str, Any]:
    """What every template knows of who looks: may they log in, and the field of their forms."""
    authenticator = request.app.state.context.authenticator
    session = authenticator.session_of(request)
    field = Markup('<input type="hidden" name="{}" value="{}">').format(
        CSRF_FIELD, session.csrf if session else ""
    )
    return {
        "csrf": field,
        "logged_in": session is not None,
        "takes_tokens": authenticator.mode is AuthMode.TOKENS,
    }


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A rendered page. Pages are checked each time, never taken from a cache unasked."""
    shared = _viewer(request) | {
        "path": request.url.path,
        "query": request.query_params.get("q", ""),
        "newest": None,
    }
    text = ENVIRONMENT.get_template(template).render(request=request, **(shared | values))
    headers = {"Cache-Control": "private, no-cache"}
    return HTMLResponse(text, status_code=status, headers=headers)
