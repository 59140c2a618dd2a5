"""Who asks, and may they: tokens, sessions of browsers, scopes, CSRF.

`AuthMode.OPEN` (the demo, `serve --no-auth`) trusts whoever reaches it, so it is reachable only
under a local name: the checks are in `middleware.Gate`.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ..contract.errors import NotAllowedError, NotAuthenticatedError
from ..contract.words import Scope
from ..store.database import Database
from ..store.events import now
from ..store.models import TokenRow
from ..store.overviews import touch_token, valid_token
from ..store.tokens import find_token

SESSION_COOKIE = "lossbench_session"
SESSION_S = 12 * 3600
MOST_SESSIONS = 10_000
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf_token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOUCH_EVERY = timedelta(seconds=60)
_GRANTS = {
    Scope.ADMIN: frozenset(Scope),
    Scope.SUBMIT: frozenset({Scope.SUBMIT, Scope.READ}),
    Scope.READ: frozenset({Scope.READ}),
}


class AuthMode(StrEnum):
    """How writing is guarded."""

    TOKENS = "tokens"
    """Writing needs a token; reading too where `open_reading` is off."""
    OPEN = "open"
    """No token; local host names only."""


@dataclass(frozen=True)
class Session:
    """A browser that logged in: the cookie's secret, the token behind it, its CSRF token."""

    secret: str = field(repr=False)
    token_id: str
    csrf: str = field(repr=False)
    ends_at: float


@dataclass(frozen=True)
class Principal:
    """Who sent a request. `owner` scopes rate limits and idempotency keys."""

    owner: str
    scopes: frozenset[Scope]
    token_id: str | None = None
    session: Session | None = None

    def may(self, scope: Scope) -> bool:
        """Whether this scope is granted."""
        return scope in self.scopes


class Sessions:
    """Sessions of browsers, in memory: a restart of the service ends them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_hash: dict[str, Session] = {}
        self._lock = threading.Lock()

    def open(self, token_id: str) -> Session:
        """A new session for a token. Its secret is random: it says nothing of the token."""
        session = Session(
            secret=secrets.token_urlsafe(32),
            token_id=token_id,
            csrf=secrets.token_urlsafe(32),
            ends_at=self._clock() + SESSION_S,
        )
        with self._lock:
            self._by_hash[_digest(session.secret)] = session
            while len(self._by_hash) > MOST_SESSIONS:
                del self._by_hash[next(iter(self._by_hash))]
        return session

    def find(self, secret: str) -> Session | None:
        """The session behind a cookie; None when unknown or over."""
        key = _digest(secret)
        with self._lock:
            session = self._by_hash.get(key)
            if session is not None and session.ends_at <= self._clock():
                del self._by_hash[key]
                return None
            return session

    def close(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            self._by_hash.pop(_digest(secret), None)


def _digest(secret: str) -> str:
    # looked up by hash, so that the time of the lookup tells nothing of the secret
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class Authenticator:
    """Finds out who sent a request."""

    def __init__(self, database: Database, mode: AuthMode) -> None:
        self.mode = mode
        self.sessions = Sessions()
        self._database = database

    def principal(self, request: Request) -> Principal:
        """Who sent it; without credentials an address with no scopes.

        Raises NotAuthenticatedError for a token that is not valid.
        """
        if self.mode is AuthMode.OPEN:
            return Principal("local", frozenset(Scope))
        header = request.headers.get("authorization")
        if header is not None:
            kind, _, secret = header.partition(" ")
            if kind.lower() != "bearer":
                raise NotAuthenticatedError("only `Authorization: Bearer <token>` is understood")
            return self._of_token(self._checked(secret.strip()))
        session = self.session_of(request)
        if session is not None:
            with self._database.reading() as reading:
                token = valid_token(reading, session.token_id)
            if token is not None:
                return self._of_token(token, session)
        return Principal(address_of(request), frozenset())

    def session_of(self, request: Request) -> Session | None:
        """The session of the browser that sent it."""
        cookie = request.cookies.get(SESSION_COOKIE)
        return self.sessions.find(cookie) if cookie else None

    def login(self, secret: str) -> Session:
        """A session for whoever holds a token. Raises NotAuthenticatedError."""
        return self.sessions.open(self._checked(secret).id)

    def _checked(self, secret: str) -> TokenRow:
        with self._database.reading() as session:
            token = find_token(session, secret) if secret.isascii() else None
        if token is None:
            raise NotAuthenticatedError("the token is unknown, revoked or expired")
        return token

    def _of_token(self, token: TokenRow, session: Session | None = None) -> Principal:
        if token.last_used_at is None or now() - token.last_used_at > _TOUCH_EVERY:
            with self._database.transaction() as writing:
                touch_token(writing, token.id)
        known = [Scope(name) for name in token.scopes if name in set(Scope)]
        granted = frozenset(scope for name in known for scope in _GRANTS[name])
        return Principal(token.id, granted, token.id, session)


def address_of(request: Request) -> str:
    """Name of an unauthenticated sender: its address. Forwarded headers are never believed."""
    return f"address:{request.client.host if request.client else 'unknown'}"


def own_origin(headers: Any, scheme: str, proxied: bool = False) -> bool:
    """False when a browser says that the request comes from another site's page.

    `proxied`: a proxy in front may end TLS, so that a browser's https arrives as http.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.netloc.lower() != headers.get("host", "").lower():
        return False
    return parts.scheme == scheme or (proxied and parts.scheme == "https")


def check_csrf(principal: Principal, presented: str | None) -> None:
    """A write by cookie must carry its session's CSRF token. Raises NotAllowedError."""
    session = principal.session
    if session is None:
        return
    if presented is None or not hmac.compare_digest(presented.encode(), session.csrf.encode()):
        raise NotAllowedError(
            f"a write from a browser needs its CSRF token: header {CSRF_HEADER} or field "
            f"{CSRF_FIELD}"
        )


def require(principal: Principal, scope: Scope) -> None:
    """Raises NotAuthenticatedError for a stranger, NotAllowedError for too small a token."""
    if principal.may(scope):
        return
    if principal.token_id is None:
        raise NotAuthenticatedError()
    raise NotAllowedError(f"this token lacks the scope {scope.value!r}")


def set_session_cookie(response: Response, session: Session, secure: bool) -> None:
    """Hand the browser its session. `secure` when the service is reached by https."""
    response.set_cookie(
        SESSION_COOKIE,
        session.secret,
        max_age=SESSION_S,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def clear_session_cookie(response: Response) -> None:
    """Take the session from the browser."""
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
