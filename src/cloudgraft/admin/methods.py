"""Implements the methods of the admin service, by name.

Each takes a JSON object and returns one. An unknown key or a value of the wrong type is rejected, so that a mistake in
a request never does something else than intended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from cloudgraft.admin.caller import caller
from cloudgraft.dock.hub.settings import DriverReport
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.operations import adoption, orphan_deletion, pauses, release, scaling
from cloudgraft.engine.operations.accept_loss import accept_loss
from cloudgraft.engine.reporting.events import read_events
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.findings import all_findings, unknown_clouds
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.engine.reporting.report_json import as_json_in_slices, as_json_list
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store.records import Scope

Method = Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]

_LONGEST: Final = 1000  # characters of a reason
_MOST_EVENTS: Final = 1000
_LONGEST_AGO: Final = 100 * 365 * 86_400  # seconds
_LARGEST: Final = 2**63 - 1  # number of an event in the journal


def engine_methods(
    engine: Engine, *, config_trouble: Callable[[], str] = str, transport: str = ""
) -> dict[str, Method]:
    """The methods of one engine.

    ``config_trouble`` returns the error of a changed configuration file; ``transport`` is the transport of the
    autoscaler's calls, empty where there are none.
    """
    methods = _Methods(engine, config_trouble, transport)
    return {
        "Status": methods.status,
        "Explain": methods.explain,
        "Events": methods.events,
        "Scale": methods.scale,
        "Pause": methods.pause,
        "Resume": methods.resume,
        "AcceptLoss": methods.accept_loss,
        "Adopt": methods.adopt,
        "ListOrphans": methods.list_orphans,
        "AdoptOrphans": methods.adopt_orphans,
        "ReleaseMachines": methods.release,
        "DeleteOrphans": methods.delete_orphans,
    }


def dock_methods(drivers: Callable[[], Sequence[DriverReport]]) -> dict[str, Method]:
    """The methods of a dock. ``drivers`` is its hub's method of that name."""

    async def dock_drivers(request: Mapping[str, object]) -> dict[str, object]:
        _Request(request)
        return {"drivers": [_driver_json(report) for report in drivers()]}

    return {"DockDrivers": dock_drivers}


def _driver_json(report: DriverReport) -> dict[str, object]:
    info = report.info
    return {
        "kind": info.key.kind,
        "apiVersion": info.key.api_version,
        "protocol": info.protocol,
        "name": info.name,
        "version": info.version,
        "instanceId": info.instance_id,
        "identity": report.identity,
        "peer": report.peer,
        "sessionId": report.session_id,
        "state": report.state,
        "since": report.since.astimezone(UTC).isoformat(timespec="seconds"),
        "connectedSeconds": round(max(0.0, (datetime.now(UTC) - report.since).total_seconds()), 3),
        "silentSeconds": round(report.silent_for.total_seconds(), 3),
        "inFlight": report.in_flight,
        "queued": report.queued,
        "queuedSeconds": round(report.queued_for.total_seconds(), 3),
        "succeeded": report.succeeded,
        "failed": report.failed,
        "malformed": report.malformed,
        "lastError": report.last_error,
        "unclassified": report.unclassified,
    }


class _Methods:
    def __init__(self, engine: Engine, config_trouble: Callable[[], str], transport: str) -> None:
        self._engine = engine
        self._config_trouble = config_trouble
        self._transport = transport

    async def status(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "machines")
        report = await make_report(
            self._engine,
            group=asked.text("group"),
            with_machines=asked.flag("machines"),
            config_trouble=self._config_trouble(),
        )
        return {**await as_json_in_slices(report), "transport": self._transport}

    async def explain(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "subject", "limit")
        return await as_json_in_slices(
            await explain(
                self._engine,
                asked.needed("subject"),
                limit=asked.number("limit", 30, most=_MOST_EVENTS),
                config_trouble=self._config_trouble(),
            )
        )

    async def events(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "machine", "kinds", "sinceSeconds", "after", "limit")
        page = await read_events(
            self._engine,
            group=asked.text("group"),
            machine=asked.text("machine"),
            kinds=asked.texts("kinds"),
            since_seconds=asked.number("sinceSeconds", 0, least=0, most=_LONGEST_AGO) or None,
            after=asked.number("after", 0, least=0, most=_LARGEST) if "after" in request else None,
            limit=asked.number("limit", 50, most=_MOST_EVENTS),
        )
        return await as_json_in_slices(page)

    async def scale(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "change", "order", "machines", "deleteReady", "expected", "user", "dryRun")
        order = scaling.ScaleOrder(
            group=asked.needed("group"),
            change=asked.needed("change"),
            machines=asked.texts("machines"),
            delete_ready=asked.flag("deleteReady"),
            expected=asked.texts("expected") if "expected" in request else None,
            # The name in a certificate is proven. On the socket only the server's own user and root can call.
            by=caller() or asked.text("user", longest=100),
        )
        if asked.flag("dryRun", otherwise=True):
            return dict(scaling.preview(self._engine, order, asked.text("order")))
        return dict(await scaling.scale(self._engine, order, asked.needed("order")))

    async def pause(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "cloud", "reason")
        scope, name = asked.scope()
        is_new = await pauses.pause(self._engine, scope, name, asked.text("reason", longest=_LONGEST))
        return {"scope": scope.value, "name": name, "changed": is_new}

    async def resume(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "cloud")
        scope, name = asked.scope()
        return {"scope": scope.value, "name": name, "changed": await pauses.resume(self._engine, scope, name)}

    async def accept_loss(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "cloud")
        scope, name = asked.scope()
        return {"scope": scope.value, "name": name, "machines": await accept_loss(self._engine, scope, name)}

    async def adopt(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "group", "machineIds", "namePrefix", "dryRun")
        result = await adoption.adopt(
            self._engine,
            asked.needed("group"),
            asked.texts("machineIds"),
            prefix=asked.text("namePrefix"),
            is_dry_run=asked.flag("dryRun", otherwise=True),
        )
        return await as_json_in_slices(result)

    async def list_orphans(self, request: Mapping[str, object]) -> dict[str, object]:
        _Request(request)
        self._engine.check_leader()
        found = await as_json_list(await all_findings(self._engine))
        return {"orphans": found, "unknown": await as_json_list(unknown_clouds(self._engine))}

    async def adopt_orphans(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "machineIds", "all", "group", "cloud", "dryRun")
        result = await adoption.adopt_orphans(
            self._engine,
            asked.texts("machineIds"),
            everything=asked.flag("all"),
            group=asked.text("group"),
            cloud=asked.text("cloud"),
            is_dry_run=asked.flag("dryRun", otherwise=True),
        )
        return await as_json_in_slices(result)

    async def release(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "machines", "group", "dryRun")
        is_dry_run, group, machines = asked.flag("dryRun", otherwise=True), asked.text("group"), asked.texts("machines")
        if bool(group) == bool(machines):
            raise InvalidArgumentError("say which machines to release, or the group that is draining")
        if group:
            return await as_json_in_slices(await release.release_group(self._engine, group, is_dry_run=is_dry_run))
        return await as_json_in_slices(await release.release(self._engine, machines, is_dry_run=is_dry_run))

    async def delete_orphans(self, request: Mapping[str, object]) -> dict[str, object]:
        asked = _Request(request, "machineIds", "cloud", "force", "dryRun")
        result = await orphan_deletion.delete_orphans(
            self._engine,
            asked.texts("machineIds"),
            cloud=asked.text("cloud"),
            force=asked.flag("force"),
            is_dry_run=asked.flag("dryRun", otherwise=True),
        )
        return await as_json_in_slices(result)


class _Request:
    """A JSON object whose keys and values are validated before anything is done."""

    def __init__(self, values: Mapping[str, object], *keys: str) -> None:
        unknown = sorted(set(values) - set(keys))
        if unknown:
            known = ", ".join(keys) or "none"
            raise InvalidArgumentError(f"the request has the unknown key {unknown[0]!r}; the keys are: {known}")
        self._values = values

    def text(self, key: str, *, longest: int = 500) -> str:
        value = self._values.get(key, "")
        if not isinstance(value, str) or len(value) > longest:
            raise InvalidArgumentError(f"{key} must be a text of at most {longest} characters")
        return value

    def needed(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise InvalidArgumentError(f"{key} is missing")
        return value

    def texts(self, key: str) -> Sequence[str]:
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise InvalidArgumentError(f"{key} must be a list of texts, none of them empty")
        return value

    def flag(self, key: str, *, otherwise: bool = False) -> bool:
        value = self._values.get(key, otherwise)
        if not isinstance(value, bool):
            raise InvalidArgumentError(f"{key} must be true or false")
        return value

    def number(self, key: str, otherwise: int, *, most: int, least: int = 1) -> int:
        value = self._values.get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidArgumentError(f"{key} must be a whole number from {least} to {most}")
        return value

    def scope(self) -> tuple[Scope, str]:
        """The named group or cloud; exactly one."""
        group, cloud = self.text("group"), self.text("cloud")
        if bool(group) == bool(cloud):
            raise InvalidArgumentError("say either a group or a cloud")
        return (Scope.GROUP, group) if group else (Scope.CLOUD, cloud)
