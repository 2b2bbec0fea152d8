"""Renews the certificates of an installation in several ways under load, and replaces its authority."""

from __future__ import annotations

import time
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from e2e.build import Tell
from e2e.certificates import issued
from e2e.certificates.callers import Callers
from e2e.certificates.pods import Pods
from e2e.kubernetes import Workload

__all__ = ["play"]

_BY_TIME: Final = 3  # renewals that cert-manager begins by itself
_EVERY: Final = 20  # seconds between these
_LOOPS: Final = 5
_PODS: Final = Workload(name="load", replicas=1, cpu="1500m", memory="1Gi")


def play(pods: Pods, tell: Tell) -> None:
    """Raises AssertionError when something is not as it must be."""
    pods.start()
    pods.stage.cluster.run(_PODS)
    pods.settle(1)
    callers = Callers(pods.client_config, pods.client.lock)
    pods.stage.stack.callback(callers.stop)
    pods.also(callers.check)
    _renewed_by_time(pods, tell)
    pods.stage.cluster.scale("load", 2)  # over the connection that the autoscaler has had from the start
    pods.settle(2)
    _renewed_client(pods, tell)
    _renewed_authority(pods, tell)
    pods.stage.cluster.scale("load", 3)
    pods.settle(3)
    callers.stop()
    callers.check()
    calls = pods.judge_calls()
    tell(f"{callers.kept} calls over one connection, {callers.new} over as many, the longest {callers.longest:.2f} s")
    tell(f"{calls} calls at the server in {pods.loops()} loops of the autoscaler: none failed")
    _new_key(pods, tell)


# -- renewals under load: no call fails --------------------------------------------------------------------------------


def _renewed_by_time(pods: Pods, tell: Tell) -> None:
    """By cert-manager's own clock: it begins so early that each certificate is in use for seconds only."""
    asked = pods.request("server")["spec"]
    hours = int(asked["duration"].split("h")[0])
    begin = time.monotonic()
    pods.change_request("server", {"renewBefore": f"{hours - 1}h59m{60 - _EVERY}s"})
    serials = {pods.served().serial_number}

    def is_renewed() -> bool:
        serials.add(pods.served().serial_number)
        return len(serials) > _BY_TIME

    pods.until(is_renewed, f"the server shows {_BY_TIME} new certificates, one after the other")
    tell(f"the server's certificate was renewed {_BY_TIME} times by time, within {time.monotonic() - begin:.0f} s")
    pods.change_request("server", {"renewBefore": asked["renewBefore"]})
    pods.until(lambda: _is_settled(pods, "server"), "the server's certificate is renewed no more")


def _renewed_client(pods: Pods, tell: Tell) -> None:
    """The autoscaler goes on with what it has read when it started, and reads the new one when it starts again."""
    _renew(pods, "client", tell)
    pods.wait_for_loops(_LOOPS)
    pods.restart_autoscaler()


def _renewed_authority(pods: Pods, tell: Tell) -> None:
    """Its key stays: what it has signed before is good to those who know the new one only, and the other way round."""
    before = _authority(pods)
    pods.renew_now("ca")
    pods.until(lambda: pods.authority() not in {None, before}, "the authority is renewed")
    after = _authority(pods)
    assert _key(after) == _key(before), "the renewed authority has another key"
    pods.wait_for_loops(_LOOPS)
    assert pods.trusted("server") == before, "cert-manager has changed a Secret that nobody has asked it to change"
    _renew(pods, "server", tell)
    assert (pods.trusted("server"), pods.trusted("client")) == (after, before), "not one side alone has the new one"
    pods.wait_for_loops(_LOOPS)
    pods.restart_autoscaler()  # has the old one, and calls a server that has the new one
    _renew(pods, "client", tell)
    pods.restart_autoscaler()  # has the new one
    tell("the authority was renewed with its key, and server and client after it")


# -- another key of the authority --------------------------------------------------------------------------------------


def _new_key(pods: Pods, tell: Tell) -> None:
    """Its Secret is lost, which is no renewal. Each side needs a new certificate, and the autoscaler a restart."""
    before = _authority(pods)
    pods.lose_authority()
    pods.until(lambda: _has_other_key(pods, before), "the authority has a new key")
    pods.wait_for_loops(_LOOPS)
    assert pods.trusted("server") == before, "cert-manager has changed a Secret that nobody has asked it to change"
    assert pods.can_connect(), "a lost Secret of the authority has an effect by itself"
    _renew(pods, "server", tell, is_shown=False)
    pods.until(lambda: not pods.can_connect(), "a client of the old authority is refused")
    pods.wait_for_loops(_LOOPS)
    pods.judge_calls()  # over the connection that it has
    tell("the authority got a new key, and the server a certificate of it: new connections are refused, old ones stay")
    _renew(pods, "client", tell)
    pods.until(pods.can_connect, "a client of the new authority is served")
    pods.restart_autoscaler()
    pods.judge_calls()
    tell("after the client's renewal and a restart of the autoscaler, both sides have the new authority")


def _has_other_key(pods: Pods, than: x509.Certificate) -> bool:
    now = pods.authority()
    return now is not None and _key(now) != _key(than)


# -- parts -------------------------------------------------------------------------------------------------------------


def _renew(pods: Pods, name: str, tell: Tell, *, is_shown: bool = True) -> None:
    """Returns when the new one is mounted, and that of the server shown to a client of the same authority."""
    before = pods.mounted(name).serial_number
    begin = time.monotonic()
    pods.renew_now(name)
    pods.until(lambda: pods.mounted(name).serial_number != before, f"the certificate of the {name} is renewed")
    made = time.monotonic()
    told = f"the certificate of the {name} was renewed by hand: mounted after {made - begin:.1f} s"
    if name == "server" and is_shown:
        new = pods.mounted(name).serial_number
        pods.until(lambda: pods.served().serial_number == new, "the server shows its new certificate")
        told += f", shown {time.monotonic() - made:.1f} s later"
    tell(told)


def _is_settled(pods: Pods, name: str) -> bool:
    """Whether cert-manager has done all that it was asked for, and the server shows what it has made last."""
    return issued.are_settled([pods.request(name)]) and pods.served() == pods.mounted(name)


def _authority(pods: Pods) -> x509.Certificate:
    found = pods.authority()
    assert found is not None, "there is no authority"
    return found


def _key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
