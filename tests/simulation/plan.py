"""A plan: what goes wrong, and when. Plain data, drawn from a seed or written by hand.

As text, a step is ``at:kind:value,value``, in seconds since the run began; steps are separated by ``;``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from tests.simulation.setting import Setting

if TYPE_CHECKING:
    from tests.simulation.world import World

HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens at a certain time."""

    at: float

    kind: ClassVar[str] = ""
    weight: ClassVar[float] = 1.0  # how often it is drawn
    journals: ClassVar[str] = "any"  # for which it makes sense: sqlite, postgresql

    def apply(self, world: World) -> None:
        """Makes it happen."""
        raise NotImplementedError

    @classmethod
    def draw(cls, at: float, dice: random.Random, setting: Setting) -> Step:
        """One with random values."""
        raise NotImplementedError

    @property
    def lasts(self) -> float:
        """For how long it goes on."""
        return float(getattr(self, "seconds", 0.0))

    def shorter(self) -> Step | None:
        """The same, half as long; None where that means nothing."""
        return None


Plan = Sequence[Step]
S = TypeVar("S", bound=type[Step])
KINDS: Final[dict[str, type[Step]]] = {}


def kind(name: str, weight: float = 1.0, journals: str = "any") -> Callable[[S], S]:
    """Registers a kind of step."""

    def register(cls: S) -> S:
        cls.kind, cls.weight, cls.journals = name, weight, journals
        KINDS[name] = cls
        return cls

    return register


def show_plan(plan: Plan) -> str:
    """As text."""
    return ";".join(_show(step) for step in plan)


def _show(step: Step) -> str:
    values = [getattr(step, spec.name) for spec in fields(step)[1:]]
    return f"{step.at:g}:{step.kind}:{','.join(f'{v:g}' if isinstance(v, float) else str(v) for v in values)}"


def parse_plan(text: str) -> list[Step]:
    """From text; ValueError says what is wrong with it."""
    return [_parse(part.strip()) for part in text.split(";") if part.strip()]


def _parse(text: str) -> Step:
    at, name, rest = (*text.split(":", 2), "")[:3]
    if name not in KINDS:
        raise ValueError(f"{text!r}: there is no step {name!r}; there is: {', '.join(sorted(KINDS))}")
    cls = KINDS[name]
    specs = fields(cls)[1:]
    values = rest.split(",") if rest else []
    if len(values) != len(specs):
        raise ValueError(f"{text!r}: {name} takes {', '.join(spec.name for spec in specs)}")
    kinds = {"float": float, "int": int, "str": str}
    return cls(float(at), *(kinds[str(spec.type)](value) for spec, value in zip(specs, values, strict=True)))


def draw_plan(setting: Setting, hours: float, *, without: Collection[str] = (), journal: str = "sqlite") -> list[Step]:
    """What goes wrong in that many hours. The last two and a half of them are for everything to settle."""
    dice = random.Random(f"plan {setting.seed}")
    names = [name for name, made in KINDS.items() if name not in without and made.journals in ("any", journal)]
    weights = [KINDS[name].weight for name in names]
    count = dice.randint(4, 28)
    ends = (hours - 2.5) * HOUR
    steps: list[Step] = []
    for _ in range(count):
        at = float(round(dice.uniform(300, max(600.0, ends - 3000))))
        if steps and dice.random() < 0.5:  # troubles come together
            at = float(round(min(max(0.0, steps[-1].at + dice.uniform(0, 300)), ends - 3000)))
        name = dice.choices(names, weights)[0]
        steps.append(KINDS[name].draw(at, dice, setting))
    return sorted((s for s in steps if s.at + s.lasts < ends), key=lambda step: step.at)
