"""Forms in which a node manager tells a front what there is."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from cloudgraft.engine.groups.prices import ReferencePrice
from cloudgraft.engine.groups.specs import Money
from cloudgraft.nodemanager import snapshot
from cloudgraft.nodemanager.snapshot import GroupSnapshot, Known, Revision, Snapshot
from cloudgraft.sdk.types import AutoscalingOptions, InstanceError, InstanceState, NodeGroup, NodeTemplate
from tests.golden.engine_forms import OPTIONS, TEMPLATE
from tests.golden.forms import Form

_KNOWN: Final = Known(name="pool-1", id="sim://vm-1", placeholder="sim://pool-1", state=InstanceState.RUNNING)

MACHINE: Final = Form(
    name="front_machine",
    write=snapshot.KNOWN.write,
    read=lambda data: snapshot.KNOWN.read(data, f"a machine of {snapshot.WHAT}"),
    written={
        "running": _KNOWN,
        "requested": Known(name="p", id="sim://p", placeholder="sim://p", state=InstanceState.CREATING),
        "failed": Known(
            name="p",
            id="sim://p",
            placeholder="sim://p",
            state=InstanceState.CREATING,
            error=InstanceError(code="out_of_stock", message="größer", error_class=1),
        ),
        "whose id is another's": replace(_KNOWN, id=_KNOWN.placeholder, provider_id="sim://vm-1"),
        "deleting": replace(_KNOWN, state=InstanceState.DELETING),
        "unspecified": replace(_KNOWN, state=InstanceState.UNSPECIFIED),
        "gone": replace(_KNOWN, state=InstanceState.DELETING, is_gone=True),
        "forgotten": snapshot.forgotten("pool-1"),
    },
)

_GROUP: Final = GroupSnapshot(
    group=NodeGroup(id="lab", min_size=1, max_size=10, debug="cloud sim"),
    number=7,
    target=3,
    template=replace(TEMPLATE, name="", provider_id=""),
    options=OPTIONS,
    price=Money(amount=Decimal("0.0500"), currency="EUR"),
)
GROUP: Final = Form(
    name="front_group",
    write=snapshot.GROUP.write,
    read=lambda data: snapshot.GROUP.read(data, snapshot.WHAT),
    written={
        "full": _GROUP,
        "bare": GroupSnapshot(
            group=NodeGroup(id="bare", min_size=0, max_size=0),
            number=0,
            target=0,
            template=NodeTemplate(),
            is_complete=False,
        ),
        "options that say nothing": replace(_GROUP, options=AutoscalingOptions()),
    },
    only_read={"with its machines, and keys that are not known": _GROUP},
)

_PICTURE: Final = Snapshot(
    revision=Revision("0a1b2c3d", 42),
    group_ids=("lab", "bare"),
    groups=(),
    reference=ReferencePrice(core=Fraction(1, 4), gib=Fraction("0.05"), gpus={"nvidia.com/gpu": Fraction(3, 2)}),
    gpu_label="accelerator",
    gpu_types=("a100",),
)
_THIRD: Final = replace(_PICTURE, reference=ReferencePrice(core=Fraction(1, 3), gib=Fraction(0)))


def _general(data: Any) -> Snapshot:
    return snapshot.SNAPSHOT.read(data, snapshot.WHAT)


SNAPSHOT: Final = Form(
    name="front_snapshot",
    write=snapshot.SNAPSHOT.write,
    read=_general,
    written={
        "full": _PICTURE,
        "bare": Snapshot(revision=Revision("m", 0), group_ids=(), groups=()),
        "a price of thirty digits": _THIRD,
    },
    back={
        "a price of thirty digits": replace(
            _THIRD, reference=ReferencePrice(core=Fraction("0." + "3" * 30), gib=Fraction(0))
        )
    },
    only_read={"with its groups, and keys that are not known": replace(_PICTURE, reference=None)},
)
FORMS: Final = (MACHINE, GROUP, SNAPSHOT)
