"""The cookie of browser sessions, and the check that a request with the cookie comes from a page of this server.

Browsers add the cookie to requests by themselves, so a page of another origin could act with the rights of the user
(CSRF). SameSite=Strict prevents this for other sites, but not for other ports and subdomains of the same site.
Therefore the cookie is valid only in requests of pages of this server's own origin, also if `kwire.http.origins` lists
the other origin.
"""

from aiohttp import hdrs, web

from kwire.web.answers.errors import Forbidden, Unauthorized

COOKIE_NAME = "kwire_session"
_ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"
_WITHOUT_EFFECT = frozenset({"GET", "HEAD", "OPTIONS"})


def session_token_of(request: web.Request) -> str | None:
    """Return the token in the session cookie, None if there is none. Raises Unauthorized if there are several."""
    found = [
        value
        for header in request.headers.getall(hdrs.COOKIE, ())
        for name, _, value in (one.strip().partition("=") for one in header.split(";"))
        if name == COOKIE_NAME and value
    ]
    if len(found) > 1:
        raise Unauthorized(f"the request has more than one cookie {COOKIE_NAME}")
    return found[0] if found else None


def set_session_cookie(request: web.Request, answer: web.Response, token: str) -> None:
    answer.headers[hdrs.SET_COOKIE] = f"{COOKIE_NAME}={token}; {_attributes(request)}"


def remove_session_cookie(request: web.Request, answer: web.Response) -> None:
    answer.headers[hdrs.SET_COOKIE] = f"{COOKIE_NAME}=; Max-Age=0; {_attributes(request)}"


def check_page_origin(request: web.Request) -> None:
    """Raise Forbidden if a page of another origin has sent the request. Other clients than browsers are not checked."""
    if _is_same_origin(request) is False and request.headers.get("Sec-Fetch-Site") != "none":
        raise _refusal()


def check_session_origin(request: web.Request) -> None:
    """Raise Forbidden unless a request with the session cookie may use it.

    A request that may change something must prove that it comes from a page of this server. WebSockets may: clients
    publish events through them, and the same-origin policy of browsers does not apply to them.
    """
    if request.method in _WITHOUT_EFFECT and hdrs.UPGRADE not in request.headers:
        check_page_origin(request)
    elif not _is_same_origin(request):
        raise _refusal()


def _is_same_origin(request: web.Request) -> bool | None:
    """Return whether a page of this server has sent the request; None if the request does not come from a browser."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return None
    return origin.partition("://")[2].lower() == request.headers.get(hdrs.HOST, "").lower()


def _refusal() -> Forbidden:
    return Forbidden(
        f"the cookie {COOKIE_NAME} is accepted only from pages of this server, whose requests have the header Origin "
        "or Sec-Fetch-Site: use the header Authorization instead",
        code="SessionOriginNotAllowed",
    )


def _attributes(request: web.Request) -> str:
    return f"{_ATTRIBUTES}; Secure" if request.secure else _ATTRIBUTES
