"""Who may see the console, and what a browser may do with its pages. Every request goes through here.

1. Host. A page of another site can have its own name lead to this machine (DNS rebinding); the browser then takes it
   for that site. So the Host header has to be an address, localhost, or a name that the settings give.
2. Session. A cookie that no script sees, bound to this process: an id, whether its browser has shown the token that
   the settings ask for (`http_token_file`), or which user has logged in, where Kafka's clients do that with passwords.
   That holds for `_SESSION_S`. Without token and passwords everyone who reaches the port is let in. A program may send
   the token as `Authorization: Bearer`, as for /metrics.
3. Changes. A POST has to come from the console's own page: by what the browser says of its origin, and by a token in
   the form that only a page of this session can have (CSRF).
4. Headers. Nothing but the console's own files runs in its pages or styles them, and no other site may frame them.

There is no CORS: no header lets another site read an answer.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ketch.configs.lists import items
from ketch.configs.settings import Settings

_SESSION_S = 12 * 3600
FORM_MAX = 4 << 20  # bytes of a form
_COOKIE = "ketch-console"
_NO_HOST = frozenset("@/\\?# ")
_OPEN = ("/static/", "/login")  # what is there without a token
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Session:
    """A browser.

    Attributes:
        known: whether it has shown the token, or a user has logged in.
        user: who; None where it was the token.
        until: until when, s since the epoch.
    """

    id: str
    known: bool
    user: str | None = None
    until: int = 0


class Guard:
    """The ASGI layer around the console's pages.

    Args:
        token: what may be shown; None: there is none.
    """

    def __init__(self, app: ASGIApp, settings: Settings, token: str | None) -> None:
        self._app, self._token = app, token
        self.passwords = settings.has_passwords
        self._secret = secrets.token_bytes(32)
        named = (name.lower() for name in (*items(settings.console_hosts), settings.http_host))
        self._hosts = {"localhost", *named}
        self._secure = settings.http_ssl_keystore_location is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        session, fresh = self._session(request.headers)
        scope["console.session"] = session
        refusal = self._refusal(request, session)
        if refusal is None and request.method == "POST":
            refusal = await self._take_form(request, session)
        cookie = self._cookie(request.headers, session) if fresh else None

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if cookie is not None:
                    headers.append("Set-Cookie", cookie)
            await send(message)

        await (refusal or self._app)(scope, receive, guarded)

    # -- host and session

    def _refusal(self, request: Request, session: Session) -> Response | None:
        if not self._is_host(request.headers.get("host", "")):
            return PlainTextResponse("this name is not the console's: console_hosts names those that are\n", 421)
        path: str = request.scope["path"]
        if session.known or path.startswith(_OPEN):
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"/login?next={quote(_target(request), safe='')}", 303)
        wanted = "a token" if self._token is not None else "a user"
        return PlainTextResponse(f"{wanted} is wanted\n", 401, headers={"WWW-Authenticate": "Bearer"})

    def _is_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name or not _NO_HOST.isdisjoint(host):
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in self._hosts
        return True

    def _session(self, headers: Headers) -> tuple[Session, bool]:
        """The session, and whether its browser has to be given a cookie: where it has none that this process made."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        shown = self._is_open or (bearer != "" and self.opens(bearer))
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name(headers))
        except CookieError:
            cookie = None
        id, known, user, until, mac = [*("" if cookie is None else cookie.value).split("."), *[""] * 5][:5]
        if hmac.compare_digest(mac.encode(), self._mac("session", id, known, user, until).encode()):
            holds = known == "1" and time.time() < int(until)
            return Session(id, shown or holds, bytes.fromhex(user).decode() if user and holds else None), False
        return Session(secrets.token_urlsafe(16), shown), True

    @property
    def _is_open(self) -> bool:
        """Whether whoever reaches the port is let in."""
        return self._token is None and not self.passwords

    @staticmethod
    def _cookie_name(headers: Headers) -> str:
        """A cookie's port does not count: brokers on one machine need names of their own."""
        port = headers.get("host", "").rpartition(":")[2]
        return f"{_COOKIE}-{port}" if port.isdecimal() else _COOKIE

    def _cookie(self, headers: Headers, session: Session) -> str:
        known, user = "1" if session.known else "0", (session.user or "").encode().hex()
        words = (session.id, known, user, str(session.until))
        value = ".".join((*words, self._mac("session", *words)))
        name = self._cookie_name(headers)
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._secure else "")

    def _mac(self, *words: str) -> str:
        return hmac.new(self._secret, "\n".join(words).encode(), "sha256").hexdigest()

    # -- logging in

    def opens(self, given: str) -> bool:
        """Whether this is the token, or nobody is asked for one."""
        return self._is_open or (
            self._token is not None and hmac.compare_digest(given.strip().encode(), self._token.encode())
        )

    @property
    def has_token(self) -> bool:
        """Whether there is a token to be shown."""
        return self._token is not None

    def let_in(self, request: Request, response: Response, user: str | None = None) -> Response:
        """Has the browser be known from this response on."""
        session = Session(secrets.token_urlsafe(16), True, user, int(time.time()) + _SESSION_S)
        response.headers.append("Set-Cookie", self._cookie(request.headers, session))
        return response

    def let_out(self, request: Request, response: Response) -> Response:
        """Has the browser be unknown from this response on."""
        session = Session(secrets.token_urlsafe(16), False)
        response.headers.append("Set-Cookie", self._cookie(request.headers, session))
        return response

    # -- changes

    def csrf(self, request: Request) -> str:
        """What a form of this session's pages holds."""
        return self._mac("csrf", request.scope["console.session"].id)

    async def _take_form(self, request: Request, session: Session) -> Response | None:
        """Puts the form of a POST into its scope; a response where it is refused."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site not in (None, "same-origin", "none"):
            return PlainTextResponse("this comes from another site\n", 403)
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return PlainTextResponse("this comes from another site\n", 403)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_MAX:
                return PlainTextResponse("the form is too large\n", 413)
        try:
            fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=500)
        except ValueError:
            return PlainTextResponse("the form cannot be read\n", 400)
        form = {name: values[-1] for name, values in fields.items()}
        if not hmac.compare_digest(form.get("csrf", "").encode(), self._mac("csrf", session.id).encode()):
            return PlainTextResponse("this form is of an earlier run: load its page again\n", 403)
        request.scope["console.form"] = form
        return None


def _target(request: Request) -> str:
    """The path and query that were asked for."""
    path: str = request.scope["path"]
    query: bytes = request.scope["query_string"]
    return f"{path}?{query.decode('latin-1')}" if query else path
