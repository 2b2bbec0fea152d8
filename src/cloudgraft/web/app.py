"""Builds an HTTPS application: authenticated routes, problems for errors, and an OpenAPI description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.web.authentication import OPEN_PATHS, AuditLog, AuthenticationMiddleware, Gatekeeper
from cloudgraft.web.problems import MEDIA_TYPE, PROBLEMS, Fault, Problem, error_of, problem_of

DEFAULT_MAX_BODY: Final = 1 << 20  # bytes of a request
_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of the server's `clients`."},
    "certificate": {"type": "mutualTLS", "description": "A certificate whose name is one of the server's `clients`."},
}


class Health(BaseModel):
    """The server is up."""

    status: str = "ok"


def make_app(  # noqa: PLR0913 - the parts of an application, each by its name
    *,
    title: str,
    version: str,
    routers: Sequence[APIRouter],
    gatekeeper: Gatekeeper,
    audit: AuditLog,
    ready: Callable[[], Awaitable[str]],
    description: str = "",
    metrics: CollectorRegistry | None = None,
    max_body: int = DEFAULT_MAX_BODY,
) -> FastAPI:
    """Builds the application. ``ready`` returns the reason why the server is not ready; empty when it is."""
    app = FastAPI(
        title=title, version=version, description=description, docs_url=None, redoc_url=None, responses=PROBLEMS
    )
    app.add_middleware(AuthenticationMiddleware, gatekeeper=gatekeeper, audit=audit, max_body=max_body)
    app.add_exception_handler(CloudgraftError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    routers = [_health(ready), *([_metrics(metrics)] if metrics is not None else []), *routers]
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(HTTPException, _refusal([route for router in routers for route in router.routes]))
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]  # FastAPI's own way to extend it
    return app


def _health(ready: Callable[[], Awaitable[str]]) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", operation_id="healthz")
    async def healthz() -> Health:
        """Succeeds while the process responds."""
        return Health()

    @router.get("/readyz", operation_id="readyz")
    async def readyz() -> Health:
        """Whether the server can serve requests now."""
        if reason := await ready():
            raise UnavailableError(reason)
        return Health()

    return router


def _metrics(registry: CollectorRegistry) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Prometheus metrics. Any role may read them."""
        return PlainTextResponse(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


# -- errors ------------------------------------------------------------------------------------------------------------


def _answer(problem: Problem, *, retry_after: float | None = None, allow: str = "") -> JSONResponse:
    headers = {} if retry_after is None else {"Retry-After": str(max(1, round(retry_after)))}
    if allow:
        headers["Allow"] = allow
    if problem.status == 503:  # another server behind the same address may be able to, but only on a new connection
        headers["Connection"] = "close"
    content = problem.model_dump(by_alias=True)
    return JSONResponse(content, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def _id_of(request: Request) -> str:
    return str(request.scope["state"].get("request_id", ""))


async def _known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CloudgraftError)  # noqa: S101 - it is registered for these
    return _answer(problem_of(error, request_id=_id_of(request)), retry_after=error.retry_after)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for these
    # Report location and reason, not the value: it may be a secret in the wrong place.
    faults = [Fault(where=".".join(map(str, each["loc"])), message=str(each["msg"])) for each in error.errors()]
    problem = Problem(
        type="urn:cloudgraft:error:invalid_argument",
        title="the request breaks the schema",
        status=422,
        detail="; ".join(f"{fault.where}: {fault.message}" for fault in faults[:5]),
        code="invalid_argument",
        requestId=_id_of(request),
        faults=faults,
    )
    return _answer(problem)


def _refusal(routes: Sequence[BaseRoute]) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    """Handles the framework's own rejections: an unknown path or method."""

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
        generic = problem_of(error_of(error.status_code, None), request_id=_id_of(request))
        problem = generic.model_copy(update={"status": error.status_code, "detail": str(error.detail)})
        return _answer(problem, allow=_methods_of(routes, request) if error.status_code == 405 else "")

    return refused


def _methods_of(routes: Sequence[BaseRoute], request: Request) -> str:
    """All methods of a path: the framework reports only those of the first matching route."""
    found = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in found for method in getattr(route, "methods", None) or ()}))


# -- description -------------------------------------------------------------------------------------------------------


def _described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, with what FastAPI does not know: authentication, and the form of problems."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = schema.setdefault("components", {})
        problem = Problem.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
        schemas = components.setdefault("schemas", {})
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        components["securitySchemes"] = _SECURITY
        schema["security"] = [{name: []} for name in _SECURITY]
        for path in OPEN_PATHS & schema["paths"].keys():
            for operation in schema["paths"][path].values():
                operation["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema
