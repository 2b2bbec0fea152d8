"""The demo's cluster: nodes follow machines, pods follow nodes."""

from __future__ import annotations

from cloudgraft.demo.cluster import Changes, Cluster, Machine
from cloudgraft.demo.decide import Shape
from cloudgraft.demo.timetable import PodSpec, waves_of_the_day

ONE = Machine(name="small-1", provider_id="simulated://vm-000001", shape=Shape(milli_cpu=2000))
TWO = Machine(name="small-2", provider_id="simulated://vm-000002", shape=Shape(milli_cpu=2000))


def pods(count: int, ends_at: float = float("inf")) -> tuple[PodSpec, ...]:
    return tuple(PodSpec(name=f"web-{number}", milli_cpu=1000, ends_at=ends_at) for number in range(count))


def test_a_node_carries_the_id_of_its_machine() -> None:
    """R30: byte for byte."""
    cluster = Cluster()
    assert cluster.follow([ONE]) == Changes(joined=("small-1",))
    ref = cluster.nodes["small-1"].ref
    assert (ref.name, ref.provider_id) == ("small-1", "simulated://vm-000001")
    assert cluster.follow([ONE]) == Changes()


def test_pods_wait_until_a_node_has_room() -> None:
    cluster = Cluster()
    cluster.submit(pods(3))
    assert cluster.schedule() == {}
    cluster.follow([ONE])
    assert cluster.schedule() == {"web-0": "small-1", "web-1": "small-1"}
    assert (cluster.running, [pod.name for pod in cluster.pending]) == (2, ["web-2"])


def test_the_pods_of_a_machine_that_is_gone_are_pending_again() -> None:
    cluster = Cluster()
    cluster.submit(pods(2))
    cluster.follow([ONE])
    cluster.schedule()
    assert cluster.follow([TWO]) == Changes(joined=("small-2",), left=("small-1",))
    assert len(cluster.pending) == 2


def test_nothing_is_scheduled_on_a_node_that_is_leaving() -> None:
    cluster = Cluster()
    cluster.submit(pods(1))
    cluster.follow([ONE])
    cluster.nodes["small-1"].leaving = True
    assert cluster.schedule() == {}


def test_a_pod_finishes_when_its_time_has_come_and_not_if_it_never_ran() -> None:
    cluster = Cluster()
    cluster.submit(pods(3, ends_at=10.0))
    cluster.follow([ONE])
    cluster.schedule()
    assert cluster.finish_until(9.0) == []
    assert [pod.name for pod in cluster.finish_until(10.0)] == ["web-0", "web-1"]
    assert (cluster.finished, cluster.running, len(cluster.pending)) == (2, 0, 1)


def test_the_pods_of_a_wave_finish_one_after_the_other() -> None:
    for wave in waves_of_the_day():
        ends = sorted(pod.ends_at for pod in wave.pods())
        assert len(set(ends)) == wave.count
        assert ends[0] == wave.first_ends > wave.arrives
