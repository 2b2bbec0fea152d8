"""Mistakes in prices and GPUs."""

from __future__ import annotations

import grpc

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import Refusal, SoundServer


@fault("R84", check="prices_are_above_zero")
class NodesAreFree(SoundServer):
    """PricingNodePrice answers 0, so that the price expander sees nothing to choose by."""

    async def node_price(self, request: pb.PricingNodePriceRequest) -> pb.PricingNodePriceResponse:
        return pb.PricingNodePriceResponse(price=0.0)


@fault("R84", check="prices_are_above_zero")
class NodesPayMoneyBack(SoundServer):
    """PricingNodePrice answers a price below zero."""

    async def node_price(self, request: pb.PricingNodePriceRequest) -> pb.PricingNodePriceResponse:
        return pb.PricingNodePriceResponse(price=-(await super().node_price(request)).price)


@fault("R81", "R83", check="planned_nodes_have_a_price")
class PriceByProviderIdOnly(SoundServer):
    """PricingNodePrice finds machines by providerID, which the template that it is asked about does not have."""

    async def node_price(self, request: pb.PricingNodePriceRequest) -> pb.PricingNodePriceResponse:
        if self.find(request.node) is None:
            raise Refusal(f"{request.node.name} does not exist", grpc.StatusCode.NOT_FOUND)
        return await super().node_price(request)


@fault("R83", "R82", check="pods_have_a_price")
class PodsHaveNoPrice(SoundServer):
    """PricingPodPrice fails although nodes have prices, so that the price expander drops every option."""

    async def pod_price(self, request: pb.PricingPodPriceRequest) -> pb.PricingPodPriceResponse:
        raise Refusal("pods have no price", grpc.StatusCode.UNIMPLEMENTED)


@fault("R82", "R83", check="every_release_gets_the_same_price")
class PodOfTheNewFieldOnly(SoundServer):
    """PricingPodPrice reads pod_bytes only, and fails for autoscalers up to 1.33, which send the old field."""

    async def pod_price(self, request: pb.PricingPodPriceRequest) -> pb.PricingPodPriceResponse:
        if not request.pod_bytes:
            raise Refusal("there is no pod in the request")
        return await super().pod_price(request)


@fault("R78", check="gpu_label_is_answered")
class GpuLabelFails(SoundServer):
    """GPULabel answers code 12 instead of an empty label, and is asked again for every node."""

    async def gpu_label(self, request: pb.GPULabelRequest) -> pb.GPULabelResponse:
        raise Refusal("no GPUs here", grpc.StatusCode.UNIMPLEMENTED)
