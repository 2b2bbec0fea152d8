"""The plugin in another language: examples/plugin-node, as it stands, under the real supervisor."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from cloudgraft.plugins.handshake import COOKIE_VALUE
from cloudgraft.plugins.host.process import PluginSpec
from cloudgraft.plugins.host.remote import PluginProvider
from cloudgraft.sdk import (
    AutoscalingOptions,
    Instance,
    InstanceState,
    InvalidArgumentError,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotFoundError,
    Pod,
    Quantity,
    UnsupportedError,
)
from tests.plugins.node_program import NODE_PLUGIN, node_binary
from tests.plugins.plugin_programs import TIMING

GROUP = NodeGroup(id="from-node", min_size=0, max_size=4, debug="in memory")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def provider(caplog: pytest.LogCaptureFixture) -> AsyncIterator[PluginProvider]:
    caplog.set_level(logging.INFO, "cloudgraft.plugins")
    options = {"id": GROUP.id, "maxSize": GROUP.max_size}
    spec = PluginSpec(name="node", command=[node_binary(), str(NODE_PLUGIN)], options=options)
    provider = PluginProvider(spec, timing=TIMING)
    await provider.start()
    yield provider
    await provider.close()


async def test_all_its_calls_work(provider: PluginProvider, caplog: pytest.LogCaptureFixture) -> None:
    await provider.refresh()
    assert await provider.node_groups() == [GROUP]
    assert await provider.target_size(GROUP.id) == 0
    assert await provider.instances(GROUP.id) == []
    await provider.increase_size(GROUP.id, 3)
    assert await provider.target_size(GROUP.id) == 3
    ids = [f"node-js://machine-{number}" for number in (1, 2, 3)]
    assert await provider.instances(GROUP.id) == [Instance(id=id_, state=InstanceState.RUNNING) for id_ in ids]
    assert await provider.node_group_for_node(NodeRef(name="n", provider_id=ids[0])) == GROUP
    assert await provider.node_group_for_node(NodeRef(name="machine-2")) == GROUP
    assert await provider.node_group_for_node(NodeRef(name="other", provider_id="other://1")) is None
    await provider.delete_nodes(GROUP.id, [NodeRef(provider_id=ids[0]), NodeRef(name="machine-2")])
    assert await provider.target_size(GROUP.id) == 1
    assert await provider.node_group_for_node(NodeRef(provider_id=ids[0])) == GROUP  # R24
    await provider.decrease_target_size(GROUP.id, -1)
    assert await provider.target_size(GROUP.id) == 1
    resources = {"cpu": Quantity("4"), "memory": Quantity("16Gi"), "pods": Quantity("110")}
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "pool": GROUP.id}
    assert await provider.template(GROUP.id) == NodeTemplate(labels=labels, capacity=resources, allocatable=resources)
    assert await provider.gpu_label() == ""
    assert await provider.gpu_types() == frozenset()
    await provider.cleanup()
    messages = [record.getMessage() for phase in ("setup", "call") for record in caplog.get_records(phase)]
    assert "ready" in messages  # its stderr is in our log


async def test_what_it_refuses_comes_as_the_right_error(provider: PluginProvider) -> None:
    with pytest.raises(NotFoundError, match="there is no node group 'nobody'"):
        await provider.target_size("nobody")
    with pytest.raises(InvalidArgumentError, match="cannot grow from 0 by 5: at most 4"):
        await provider.increase_size(GROUP.id, 5)
    with pytest.raises(InvalidArgumentError):
        await provider.increase_size(GROUP.id, -1)
    with pytest.raises(InvalidArgumentError, match="not of this group"):
        await provider.delete_nodes(GROUP.id, [NodeRef(provider_id="other://1")])
    with pytest.raises(UnsupportedError):
        await provider.options(GROUP.id, AutoscalingOptions())
    with pytest.raises(UnsupportedError):
        await provider.node_price(NodeRef(name="n"), NOW, NOW)
    with pytest.raises(UnsupportedError):
        await provider.pod_price(Pod(name="p"), NOW, NOW)


async def test_a_node_with_thousands_of_labels_arrives(provider: PluginProvider) -> None:
    labels = {f"label-{number}": "x" * 100 for number in range(5000)}
    assert await provider.node_group_for_node(NodeRef(name="grün", provider_id="other://1", labels=labels)) is None


def test_run_by_hand_it_says_what_it_is() -> None:
    result = subprocess.run([node_binary(), str(NODE_PLUGIN)], capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1
    assert "This program is a cloudgraft plugin" in result.stderr
    assert result.stdout == ""


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (NODE_PLUGIN.parents[2] / "docs/how-to/write-a-plugin-in-any-language.md").read_text()
    shown = re.findall(r"^```js\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = NODE_PLUGIN.read_text()
    assert shown
    assert [block for block in shown if block not in code] == []
    assert COOKIE_VALUE in code
    assert page.count(COOKIE_VALUE) == 2
