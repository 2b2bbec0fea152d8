"""A pod's requests add up as the scheduler adds them."""

from __future__ import annotations

from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Container, Pod


def _container(cpu: str, *, memory: str | None = None, sidecar: bool = False) -> Container:
    requests = {"cpu": Quantity(cpu)} | ({"memory": Quantity(memory)} if memory else {})
    return Container(requests=requests, restart_policy="Always" if sidecar else "")


def _cpu(pod: Pod) -> str:
    return str(pod_requests(pod)["cpu"])


def test_a_pod_without_requests_asks_for_nothing() -> None:
    assert pod_requests(Pod()) == {}
    assert pod_requests(Pod(containers=[Container(limits={"cpu": Quantity(1)})])) == {}


def test_containers_add_up() -> None:
    pod = Pod(containers=[_container("500m", memory="1Gi"), _container("1"), Container()])
    assert pod_requests(pod) == {"cpu": Quantity("1.5"), "memory": Quantity("1Gi")}


def test_init_containers_run_one_after_the_other_so_the_largest_counts() -> None:
    pod = Pod(containers=[_container("1")], init_containers=[_container("2"), _container("3", memory="1Gi")])
    assert pod_requests(pod) == {"cpu": Quantity(3), "memory": Quantity("1Gi")}
    assert _cpu(Pod(containers=[_container("4")], init_containers=[_container("2"), _container("3")])) == "4"


def test_a_sidecar_runs_beside_the_containers() -> None:
    pod = Pod(containers=[_container("1")], init_containers=[_container("500m", sidecar=True)])
    assert _cpu(pod) == "1500m"


def test_an_init_container_runs_beside_the_sidecars_before_it_but_not_those_after_it() -> None:
    early, late = _container("1", sidecar=True), _container("2", sidecar=True)
    job = _container("10")
    assert _cpu(Pod(containers=[_container("1")], init_containers=[early, job, late])) == "11"
    assert _cpu(Pod(containers=[_container("1")], init_containers=[early, late, job])) == "13"
    assert _cpu(Pod(containers=[_container("1")], init_containers=[job, early, late])) == "10"


def test_overhead_comes_on_top_of_everything() -> None:
    pod = Pod(
        containers=[_container("1")],
        init_containers=[_container("2")],
        overhead={"cpu": Quantity("250m"), "memory": Quantity("120Mi")},
    )
    assert pod_requests(pod) == {"cpu": Quantity("2.25"), "memory": Quantity("120Mi")}


def test_only_always_makes_a_sidecar() -> None:
    other = Container(requests={"cpu": Quantity(2)}, restart_policy="OnFailure")
    assert _cpu(Pod(containers=[_container("1")], init_containers=[other])) == "2"
