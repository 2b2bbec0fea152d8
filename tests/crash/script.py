"""A long life, phase by phase: what an autoscaler wants, what a cloud does to it, what an operator changes."""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.life import Life, Phase
from tests.crash.promises import View

Step = Callable[[Life], None]


# -- steps -----------------------------------------------------------------------------------------------------------


def _raised(group: str, size: int) -> Step:
    return lambda life: life.autoscaler.raise_to(group, size)


def _at_rest(**sizes: int) -> Step:
    """So many machines run in these groups, and nothing else is listed."""

    def step(life: Life) -> None:
        life.until(lambda view: all(view[group].is_at_rest(size) for group, size in sizes.items()))

    return step


def _failed(group: str, running: int, *codes: str) -> Step:
    """So many run, and the others are shown with these errors."""

    def holds(view: View) -> bool:
        seen = view[group]
        return len(seen.running) == running and sorted(seen.failed.values()) == sorted(codes)

    def step(life: Life) -> None:
        if life.memory.get(f"cleared {group}") != codes:
            life.until(holds)

    return step


def _cleared(group: str, *codes: str) -> Step:
    """The autoscaler deletes what failed, as it does at once."""

    def step(life: Life) -> None:
        life.memory[f"cleared {group}"] = codes
        life.autoscaler.delete(group, list(life.autoscaler.look()[group].failed))
        life.until(lambda view: not view[group].failed and len(view[group].instances) == view[group].target)

    return step


def _noted(group: str, note: str, count: int | None = None) -> Step:
    """Remembers some machines of a group that run, by all ids they have."""

    def step(life: Life) -> None:
        if note not in life.memory:
            life.memory[note] = life.autoscaler.look()[group].running[:count]

    return step


def _deleted(group: str, note: str, left: int) -> Step:
    def step(life: Life) -> None:
        life.autoscaler.delete(group, life.memory[note])
        life.until(lambda view: view[group].is_at_rest(left))

    return step


def _only(group: str, note: str) -> Step:
    """Deletes all but those that were remembered, whatever they are doing."""

    def step(life: Life) -> None:
        kept = life.memory[note]
        life.autoscaler.delete(group, [id_ for id_ in life.autoscaler.look()[group].wanted if id_ not in kept])
        life.until(lambda view: view[group].is_at_rest(len(kept)))

    return step


def _taken_back(group: str, count: int) -> Step:
    def step(life: Life) -> None:
        if "taken back" not in life.memory:
            life.memory["taken back"] = True  # whether it was answered or not, it is not said twice
            life.autoscaler.take_back(group, count)
        life.until(lambda view: view[group].is_at_rest(view[group].target))

    return step


def _sized(group: str, size: int) -> Step:
    """From whatever size it has."""

    def step(life: Life) -> None:
        life.autoscaler.raise_to(group, size)
        life.autoscaler.delete(group, life.autoscaler.look()[group].running[size:])
        life.until(lambda view: view[group].is_at_rest(size))

    return step


def _emptied(*groups: str) -> Step:
    def step(life: Life) -> None:
        for group in groups:
            life.autoscaler.delete(group, life.autoscaler.look()[group].wanted)
        life.until(lambda view: all(view[group].is_at_rest(0) for group in groups))

    return step


def _told(request: str, *arguments: object) -> Step:
    def step(life: Life) -> None:
        life.ask(request, *arguments)

    return step


def _ordered(group: str, delta: int, left: int) -> Step:
    """An operator orders machines, or removes some that run, and asks again under the same key after every crash."""

    def step(life: Life) -> None:
        key = f"{group}{delta:+}"
        if key not in life.memory:
            seen = life.autoscaler.look()[group]
            life.memory[key] = seen.target, sorted(seen.machines(seen.running))[: max(0, -delta)]
        before, victims = life.memory[key]
        life.autoscaler.order(group, before, delta, key, victims)
        life.until(lambda view: view[group].is_at_rest(left))

    return step


def _drained(group: str) -> Step:
    """A group that is no longer configured goes with its last machine."""

    def step(life: Life) -> None:
        view = life.autoscaler.look()
        if group in view:
            life.autoscaler.delete(group, view[group].wanted)
        life.until(lambda view: group not in view)

    return step


def _seen(holds: Callable[[View], bool]) -> Step:
    def step(life: Life) -> None:
        life.until(holds)

    return step


# -- what happens outside --------------------------------------------------------------------------------------------


def _chaos(**chaos: object) -> Callable[[Life], None]:
    return lambda life: life.sky.chaos(**chaos)


def _new_config(life: Life) -> None:
    life.sky.chaos()
    life.config = 1


def _bad_luck(life: Life) -> None:
    """One machine of each group is gone all of a sudden, and one more is broken."""
    if "unlucky" in life.memory:
        return
    view = life.autoscaler.look()
    machine_ids = {entry.provider_id: entry.machine_id for entry in life.sky.live()}
    gone, broken, *_ = view["web"].running
    life.autoscaler.will_lose_one("web")
    life.sky.cloud.vanish(machine_ids[gone])
    life.sky.cloud.vanish(machine_ids[view["core"].running[0]])
    life.sky.cloud.kill(machine_ids[broken])
    life.memory["unlucky"] = {gone, broken, view["core"].running[0]}


def _recovered(life: Life) -> None:
    def holds(view: View) -> bool:
        unlucky = life.memory["unlucky"]
        is_over = not any(unlucky & {i.id for i in view[group].instances} for group in ("web", "core"))
        return is_over and view["web"].is_at_rest(4) and view["core"].is_at_rest(1)

    life.until(holds)


_OUT_OF_STOCK = ("out_of_stock",) * 2

SCRIPT = (
    Phase(name="start", steps=[_seen(lambda view: sorted(view) == ["big", "core", "old", "web"])]),
    Phase(name="scale-up", steps=[_raised("web", 3), _raised("core", 1), _at_rest(web=3, core=1)]),
    Phase(
        name="stock-out",
        begin=_chaos(stock={"large": 2}),  # a stranger has one
        steps=[_raised("big", 3), _failed("big", 1, *_OUT_OF_STOCK), _cleared("big", *_OUT_OF_STOCK), _at_rest(big=1)],
    ),
    Phase(
        name="partial failure",
        begin=_chaos(
            create={
                "errors": {"after": 1, "next": 1},
                "unavailable": {"next": 1},
                "errorsAfter": {"after": 2, "next": 1},
            },
            dies={"after": 2, "next": 1},
        ),
        steps=[_raised("old", 4), _failed("old", 3, "boot_failed"), _cleared("old", "boot_failed"), _at_rest(old=3)],
    ),
    Phase(
        name="lost answers",
        begin=_chaos(create={"lost": {"next": 2}, "late": {"next": 1}}, lateBy=0.1),
        steps=[_raised("web", 6), _at_rest(web=6)],
    ),
    Phase(
        name="delete during create",
        begin=_chaos(create={"latency": 0.1}),
        steps=[_noted("core", "first"), _raised("core", 4), _only("core", "first")],
    ),
    Phase(
        name="scale-down",
        begin=_chaos(delete={"lost": {"next": 1}, "errors": {"next": 1}}, ignoresDelete={"next": 1}),
        steps=[_noted("web", "victims", 3), _deleted("web", "victims", 3)],
    ),
    Phase(
        name="taking back",
        begin=_chaos(create={"latency": 0.1}),
        steps=[_raised("web", 7), _taken_back("web", 4), _sized("web", 4)],
    ),
    Phase(
        name="configuration",
        begin=_new_config,
        steps=[
            _told("configure", 1),
            _seen(lambda view: view["web"].group.max_size == 12 and "new" in view),
            _drained("old"),
            _raised("new", 1),
            _at_rest(new=1, web=4),
        ],
    ),
    Phase(
        name="pause",
        steps=[
            _told("pause", "web"),
            _raised("web", 5),
            _failed("web", 4, "paused"),
            _cleared("web", "paused"),
            _told("resume", "web"),
            _sized("web", 5),
        ],
    ),
    Phase(name="bad luck", steps=[_bad_luck, _recovered]),
    Phase(
        name="operator's orders",
        begin=_chaos(create={"lost": {"next": 1}, "latency": 0.1}, delete={"lost": {"next": 1}}),
        steps=[_ordered("big", 3, 4), _ordered("big", -2, 2)],
    ),
    Phase(name="end", steps=[_emptied("web", "big", "core", "new")]),
)
