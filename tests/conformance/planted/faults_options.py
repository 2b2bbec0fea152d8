"""Mistakes in GetOptions."""

from __future__ import annotations

import grpc

from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import Refusal, SoundServer

_Asked = pb.NodeGroupAutoscalingOptionsRequest
_Answer = pb.NodeGroupAutoscalingOptionsResponse


def echo(request: _Asked) -> pb.NodeGroupAutoscalingOptions:
    """The defaults of the request, with every duration in both forms."""
    return wire.options_to_pb(wire.options_from_pb(request.defaults))


class _Answering(SoundServer):
    """Answers the defaults that were sent, in the releases where a set answer does no harm by itself (B1, B3)."""

    def bend(self, options: pb.NodeGroupAutoscalingOptions) -> None:
        """Changes the complete answer."""

    async def options(self, request: _Asked) -> _Answer:
        answer = await super().options(request)
        age = wire.client_age(request.defaults)
        if not (age.up_to_1_28 or age.since_1_35):
            answer.nodeGroupAutoscalingOptions.CopyFrom(echo(request))
            self.bend(answer.nodeGroupAutoscalingOptions)
        return answer


@fault("R73", "T8", check="old_releases_get_no_code_12_for_options")
class OptionsUnimplementedForAll(SoundServer):
    """GetOptions answers code 12 to everybody: autoscalers up to 1.28 take it for a failure and never scale down."""

    async def options(self, request: _Asked) -> _Answer:
        await super().options(request)
        raise Refusal("no options", grpc.StatusCode.UNIMPLEMENTED)


@fault("R76", "R73", "R8", "R13", check="options_do_not_fail")
class OptionsFail(SoundServer):
    """GetOptions answers a plain error where it has no options, as the example server does."""

    async def options(self, request: _Asked) -> _Answer:
        await super().options(request)
        raise Refusal("no options were given", grpc.StatusCode.UNKNOWN)


@fault("R74", "R75", "T8", check="options_crash_no_release")
class OptionsOfZeros(SoundServer):
    """GetOptions answers an empty set of options: thresholds of zero, and new machines deleted in the next loop."""

    async def options(self, request: _Asked) -> _Answer:
        await super().options(request)
        return _Answer(nodeGroupAutoscalingOptions=pb.NodeGroupAutoscalingOptions())


@fault("R74", "R75", "T8", check="options_crash_no_release")
class OptionsInPart(SoundServer):
    """GetOptions answers the one threshold that is configured and leaves the rest out."""

    async def options(self, request: _Asked) -> _Answer:
        await super().options(request)
        return _Answer(nodeGroupAutoscalingOptions=pb.NodeGroupAutoscalingOptions(scaleDownUtilizationThreshold=0.7))


@fault("R75", "T8", check="options_crash_no_release")
class OptionsInTheNewFieldsOnly(_Answering):
    """GetOptions gives durations as google.protobuf.Duration only: autoscalers up to 1.34.1 crash on the others."""

    def bend(self, options: pb.NodeGroupAutoscalingOptions) -> None:
        options.ClearField("scaleDownUnneededTime")
        options.ClearField("scaleDownUnreadyTime")
        options.ClearField("MaxNodeProvisionTime")


@fault("R74", "T8", check="options_leave_time_to_boot")
class OptionsInTheOldFieldsOnly(SoundServer):
    """GetOptions gives durations in the old form only: autoscalers from 1.35 on take them for zero."""

    async def options(self, request: _Asked) -> _Answer:
        answer = await super().options(request)
        if not wire.client_age(request.defaults).up_to_1_28:
            options = answer.nodeGroupAutoscalingOptions
            options.CopyFrom(echo(request))
            options.ClearField("scaleDownUnneededDuration")
            options.ClearField("scaleDownUnreadyDuration")
            options.ClearField("MaxNodeProvisionDuration")
        return answer


@fault("R75", "R74", "T8", check="options_are_not_set_for_1_27_and_1_28")
class OptionsAlwaysSet(SoundServer):
    """GetOptions echoes the defaults: from 1.35 on that makes the startup time zero, up to 1.28 the provision time."""

    async def options(self, request: _Asked) -> _Answer:
        await super().options(request)
        return _Answer(nodeGroupAutoscalingOptions=echo(request))


@fault("R75", check="options_are_not_set_for_1_35_and_later")
class OptionsSetForTheNewest(SoundServer):
    """GetOptions answers complete options from 1.35 on, which makes the startup time zero there."""

    async def options(self, request: _Asked) -> _Answer:
        answer = await super().options(request)
        if wire.client_age(request.defaults).since_1_35:
            answer.nodeGroupAutoscalingOptions.CopyFrom(echo(request))
        return answer


@fault("R74", "T8", check="options_are_complete")
class OptionsWithoutAThreshold(_Answering):
    """GetOptions leaves the one threshold out that it does not know: only idle nodes are ever removed."""

    def bend(self, options: pb.NodeGroupAutoscalingOptions) -> None:
        options.ClearField("scaleDownUtilizationThreshold")


@fault("R74", "R77", check="options_keep_the_booleans")
class OptionsWithoutTheBooleans(_Answering):
    """GetOptions does not know the two newer options, and turns them off for all who set them."""

    def bend(self, options: pb.NodeGroupAutoscalingOptions) -> None:
        options.ClearField("zeroOrMaxNodeScaling")
        options.ClearField("ignoreDaemonSetsUtilization")


@fault("R74", "T8", check="options_echo_the_right_defaults")
class OptionsWithTheGpuThreshold(_Answering):
    """GetOptions answers the GPU's threshold for both, as the example server does."""

    def bend(self, options: pb.NodeGroupAutoscalingOptions) -> None:
        options.scaleDownUtilizationThreshold = options.scaleDownGpuUtilizationThreshold


@fault("R74", "T8", check="options_echo_the_right_defaults")
class OptionsWithOneTimeForBoth(_Answering):
    """GetOptions answers the unneeded time as the unready time too, as the example server did."""

    def bend(self, options: pb.NodeGroupAutoscalingOptions) -> None:
        options.scaleDownUnreadyTime.CopyFrom(options.scaleDownUnneededTime)
        options.scaleDownUnreadyDuration.CopyFrom(options.scaleDownUnneededDuration)


@fault("R76", "R13", check="options_do_not_fail")
class OptionsFailNowAndThen(SoundServer):
    """Every fourth GetOptions fails: each such answer stops a deletion, a cleaning-up or a loop."""

    asked = 0

    async def options(self, request: _Asked) -> _Answer:
        self.asked += 1
        if self.asked % 4 == 0:
            raise Refusal("the configuration is being read", grpc.StatusCode.UNAVAILABLE)
        return await super().options(request)
