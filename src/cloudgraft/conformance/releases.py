"""Writes requests and reads answers as each release of the autoscaler does (docs/explanation/releases.md).

No field number ever got a second meaning, so the messages of :mod:`cloudgraft.wire` can stand in for those of every
release: releases differ in the fields that they fill and read. An answer on which a release would crash raises
:class:`CrashError`.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import NodeRef, NodeTemplate, Pod
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire import kubernetes
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

_FIRST_MINOR: Final = 25
_LAST_MINOR: Final = 37
_PATCH_WITH_NEW_FIELDS: Final = 2  # of 1.34


class CrashError(Exception):
    """The autoscaler of this release would crash on that answer."""


class Age(enum.Enum):
    """The five versions of the protocol."""

    UP_TO_1_28 = "1.25-1.28"
    FROM_1_29 = "1.29-1.32"
    FROM_1_33 = "1.33"
    FROM_1_34 = "1.34"
    FROM_1_35 = "1.35-1.37"

    def since(self, other: Age) -> bool:
        """Whether this age is that one or a later one."""
        order = list(Age)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options as the autoscaler holds them. What its wire cannot carry is zero after a reply."""

    threshold: float = 0.5
    gpu_threshold: float = 0.5
    unneeded: timedelta = timedelta(minutes=10)
    unready: timedelta = timedelta(minutes=20)
    provision: timedelta = timedelta(minutes=15)
    zero_or_max: bool = False
    ignore_daemon_sets: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """One release of the autoscaler, such as 1.29; the patches 1.34.0 and 1.34.1 still speak as 1.33 does."""

    minor: int
    patch: int = _PATCH_WITH_NEW_FIELDS

    @classmethod
    def parse(cls, text: str) -> Release:
        """Reads ``1.29`` or ``1.34.1``."""
        found = re.fullmatch(r"v?1\.(\d+)(?:\.(\d+))?", text.strip())
        minor = int(found[1]) if found else 0
        if found is None or not _FIRST_MINOR <= minor <= _LAST_MINOR:
            raise InvalidArgumentError(
                f"the release {text!r} is not known: give one from 1.{_FIRST_MINOR} to 1.{_LAST_MINOR}, such as 1.29"
            )
        return cls(minor, int(found[2]) if found[2] else _PATCH_WITH_NEW_FIELDS)

    def __str__(self) -> str:
        return f"1.{self.minor}"

    @property
    def age(self) -> Age:
        """The version of the protocol that it speaks."""
        if self.minor >= 35:
            return Age.FROM_1_35
        if self.minor == 34 and self.patch >= _PATCH_WITH_NEW_FIELDS:
            return Age.FROM_1_34
        if self.minor >= 33:
            return Age.FROM_1_33
        return Age.FROM_1_29 if self.minor >= 29 else Age.UP_TO_1_28

    def is_at_least(self, text: str) -> bool:
        """Whether this release is that one or a later one."""
        return self.minor >= Release.parse(text).minor

    @property
    def knows_code_12(self) -> bool:
        """Whether it accepts "unimplemented" as an answer and not as a failure (R8)."""
        return self.minor >= 29

    # -- requests ----------------------------------------------------------------------------------------------------

    def options_request(self, group: str, defaults: Options) -> pb.NodeGroupAutoscalingOptionsRequest:
        """NodeGroupGetOptions with the autoscaler's own flags."""
        request = pb.NodeGroupAutoscalingOptionsRequest(id=group)
        sent, age = request.defaults, self.age
        sent.scaleDownUtilizationThreshold = defaults.threshold
        sent.scaleDownGpuUtilizationThreshold = defaults.gpu_threshold
        if not age.since(Age.FROM_1_35):
            sent.scaleDownUnneededTime.nanoseconds = _nanoseconds(defaults.unneeded)
            sent.scaleDownUnreadyTime.nanoseconds = _nanoseconds(defaults.unready)
            if age.since(Age.FROM_1_29):
                sent.MaxNodeProvisionTime.nanoseconds = _nanoseconds(defaults.provision)
        if age.since(Age.FROM_1_33):
            sent.zeroOrMaxNodeScaling = defaults.zero_or_max
            sent.ignoreDaemonSetsUtilization = defaults.ignore_daemon_sets
        if age.since(Age.FROM_1_34):
            sent.scaleDownUnneededDuration.FromTimedelta(defaults.unneeded)
            sent.scaleDownUnreadyDuration.FromTimedelta(defaults.unready)
            sent.MaxNodeProvisionDuration.FromTimedelta(defaults.provision)
        return request

    def node_price_request(self, node: NodeRef, start: datetime, end: datetime) -> pb.PricingNodePriceRequest:
        """PricingNodePrice for a period."""
        request = pb.PricingNodePriceRequest(node=wire.node_ref_to_pb(node))
        self._fill_period(request, start, end)
        return request

    def pod_price_request(self, pod: Pod, start: datetime, end: datetime) -> pb.PricingPodPriceRequest:
        """PricingPodPrice for a period."""
        request, encoded = pb.PricingPodPriceRequest(), kubernetes.encode_pod(pod)
        if not self.age.since(Age.FROM_1_35):
            request.pod = encoded
        if self.age.since(Age.FROM_1_34):
            request.pod_bytes = encoded
        self._fill_period(request, start, end)
        return request

    def _fill_period(
        self, request: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest, start: datetime, end: datetime
    ) -> None:
        if not self.age.since(Age.FROM_1_35):  # metav1.Time sends whole seconds
            request.startTime.CopyFrom(wire.timestamp_to_pb(start.replace(microsecond=0)))
            request.endTime.CopyFrom(wire.timestamp_to_pb(end.replace(microsecond=0)))
        if self.age.since(Age.FROM_1_34):
            request.startTimestamp.CopyFrom(wire.timestamp_to_pb(start))
            request.endTimestamp.CopyFrom(wire.timestamp_to_pb(end))

    # -- answers -----------------------------------------------------------------------------------------------------

    def template_bytes(self, answer: pb.NodeGroupTemplateNodeInfoResponse) -> bytes:
        """The bytes of the node that this release reads; empty for none."""
        if self.age.since(Age.FROM_1_34) and answer.nodeBytes:
            return answer.nodeBytes
        return b"" if self.age.since(Age.FROM_1_35) else answer.nodeInfo

    def read_template(self, answer: pb.NodeGroupTemplateNodeInfoResponse) -> NodeTemplate:
        """The template as this release reads it; an answer without one crashes every release (R65, B5)."""
        encoded = self.template_bytes(answer)
        if not encoded:
            raise CrashError(f"the answer has no node in {self._template_field}, the field that {self} reads")
        return kubernetes.decode_node(encoded)

    @property
    def _template_field(self) -> str:
        if self.age.since(Age.FROM_1_35):
            return "nodeBytes (2)"
        return "nodeBytes (2) or nodeInfo (1)" if self.age is Age.FROM_1_34 else "nodeInfo (1)"

    def read_options(self, answer: pb.NodeGroupAutoscalingOptionsResponse) -> Options | None:
        """The options as this release reads them; None for "use the defaults"."""
        if not answer.HasField("nodeGroupAutoscalingOptions"):
            return None
        found, booleans = answer.nodeGroupAutoscalingOptions, self.age.since(Age.FROM_1_33)
        provision = timedelta(0)  # up to 1.28 there is no such field (B1)
        if self.age.since(Age.FROM_1_29):
            provision = self._duration(found, "MaxNodeProvisionDuration", "MaxNodeProvisionTime")
        return Options(
            threshold=found.scaleDownUtilizationThreshold,
            gpu_threshold=found.scaleDownGpuUtilizationThreshold,
            unneeded=self._duration(found, "scaleDownUnneededDuration", "scaleDownUnneededTime"),
            unready=self._duration(found, "scaleDownUnreadyDuration", "scaleDownUnreadyTime"),
            provision=provision,
            zero_or_max=booleans and found.zeroOrMaxNodeScaling,
            ignore_daemon_sets=booleans and found.ignoreDaemonSetsUtilization,
        )

    def _duration(self, found: pb.NodeGroupAutoscalingOptions, new: str, old: str) -> timedelta:
        # Field names as strings: the three pairs differ in nothing else.
        if self.age.since(Age.FROM_1_34) and found.HasField(new):  # type: ignore[arg-type]
            duration: Duration = getattr(found, new)
            return _timedelta(duration.seconds * 1_000_000 + duration.nanos // 1000, new)
        if self.age.since(Age.FROM_1_35):
            return timedelta(0)
        if not found.HasField(old):  # type: ignore[arg-type]
            raise CrashError(f"the options are set but {old} is absent, which {self} reads without looking (B4)")
        nanoseconds: pb.NanosecondDuration = getattr(found, old)
        return _timedelta(nanoseconds.nanoseconds // 1000, old)


NEWEST: Final = Release(_LAST_MINOR)
# One release of each age, the one in which a mistake does the most harm.
AGES: Final = (Release(28), Release(29), Release(33), Release(34), Release(37))


def _nanoseconds(value: timedelta) -> int:
    return (value // timedelta(microseconds=1)) * 1000


def _timedelta(microseconds: int, field: str) -> timedelta:
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise InvalidArgumentError(f"the duration {field} is out of range") from error
