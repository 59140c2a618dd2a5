"""The OpenAPI document, completed, and two plain pages of it that work offline."""

import json
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .errors import problem_name
from .problems import STATUS, Problem, problem_title

_CONTENDER = "#/components/schemas/Contender"
_CONTENDER_TEXT = {
    "type": "string",
    "pattern": r"^[a-z][a-z0-9_-]*(@[^\[\]]+)?(\[[^\[\]]*\])?$",
    "description": "The same as text: kernel[@version][key=value,...].",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-size:.9em;background:#f4f4f4}pre{padding:.5rem;overflow:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2rem .5rem;"
    "text-align:left;vertical-align:top}h2{border-top:1px solid #ccc;padding-top:1rem}"
)


def install_openapi(
    app: FastAPI, bodies: list[type[BaseModel]], guarded: Callable[[str, str], bool]
) -> None:
    """Give the app a document with the problems and the bodies that routes read themselves.

    `guarded(method, path)` says which routes need a token.
    """

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            _, extra = models_json_schema(
                [(Problem, "validation"), *((body, "validation") for body in bodies)],
                ref_template="#/components/schemas/{model}",
            )
            components = document.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            for name, schema in extra["$defs"].items():
                schemas.setdefault(name, schema)
            for body in bodies:
                _allow_texts(schemas[body.__name__])
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    if guarded(method.upper(), path):
                        operation["security"] = [{"token": []}]
            app.state.query_kinds = query_kinds(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _allow_texts(schema: Any) -> None:
    """Where a body takes a contender, let the schema say that its text form is taken too."""
    if isinstance(schema, list):
        for item in schema:
            _allow_texts(item)
    elif isinstance(schema, dict):
        for item in schema.values():
            _allow_texts(item)
        if schema.get("$ref") == _CONTENDER:
            del schema["$ref"]
            schema["anyOf"] = [{"$ref": _CONTENDER}, _CONTENDER_TEXT]


def query_names(document: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Names of the query parameters of every route, by method and path."""
    return {
        (method.upper(), path): [
            parameter["name"]
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query"
        ]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


class QueryKind(NamedTuple):
    """Whether a query parameter may be repeated, and whether its values are whole numbers."""

    repeatable: bool
    whole: bool


def query_kinds(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, QueryKind]]:
    """Kinds of the query parameters of every route, by method and path."""
    return {
        (method.upper(), path): {
            parameter["name"]: _kind(parameter["schema"])
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query"
        }
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def _kind(schema: dict[str, Any]) -> QueryKind:
    plain = [schema, *schema.get("anyOf", [])]
    items = [each["items"] for each in plain if each.get("type") == "array"]
    whole = any(each.get("type") == "integer" for each in (*plain, *items))
    return QueryKind(bool(items), whole)


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def errors_page() -> str:
    """Every problem type with its status and meaning."""
    parts = []
    for error, status in STATUS.items():
        name = problem_name(error)
        meaning = (error.__doc__ or "").strip().splitlines()[0]
        parts.append(
            f'<h2 id="{name}">{escape(problem_title(error))}</h2>'
            f"<p>Status {status}. {escape(meaning)}</p>"
        )
    return _page("lossbench: errors", "".join(parts))


def reference_page(document: dict[str, Any]) -> str:
    """The OpenAPI document as one page: routes, parameters, answers, schemas."""
    head = (
        '<p>The same as a file: <a href="/openapi.json">openapi.json</a>. '
        'Problem types: <a href="/docs/errors">errors</a>.</p>'
    )
    routes = [
        _route(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<pre>{escape(json.dumps(schema, indent=1))}</pre></details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    return _page(
        "lossbench: REST API", head + "".join(routes) + "<h2>Schemas</h2>" + "".join(schemas)
    )


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    text = f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    text += f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
    parameters = operation.get("parameters", [])
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(p['name'])}</code></td><td>{p['in']}</td>"
            f"<td><code>{escape(json.dumps(p['schema']))}</code></td>"
            f"<td>{escape(p.get('description', ''))}</td></tr>"
            for p in parameters
        )
        text += f"<table><tr><th>parameter<th>in<th>schema<th>meaning</tr>{rows}</table>"
    content = operation.get("requestBody", {}).get("content", {})
    for media_type, entry in content.items():
        name = entry["schema"].get("$ref", "").rpartition("/")[2]
        text += f'<p>Body: <code>{escape(media_type)}</code>, <a href="#{name}">{name}</a></p>'
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer.get('description', ''))}</td>"
        f"<td>{_schema_link(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return text + f"<table><tr><th>status<th>meaning<th>body</tr>{rows}</table>"


def _schema_link(answer: dict[str, Any]) -> str:
    for media_type, entry in answer.get("content", {}).items():
        name = entry.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name:
            return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>'
        return f"<code>{escape(media_type)}</code>"
    return ""
