"""The page about rights says what the table in the code says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cloudgraft.kube.rights import RIGHTS, Feature, Right
from tests.kube.needed_rights import PART_RIGHTS, Part, rights_of

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "rbac.md").read_text()


def _row(feature: Feature, right: Right) -> str:
    where = f"the namespace `{right.namespace}`" if right.namespace else "the whole cluster"
    return f"| `{feature.value}` | {right.verb} | {right.resource} | {right.group or 'core'} | {where} |"


def test_the_page_lists_every_right_of_every_feature_and_no_other() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| `(kubernetes|join|cloudgraft doctor)", line)]
    assert rows == [_row(feature, right) for feature, rights in RIGHTS.items() for right in rights]


def test_the_page_lists_every_right_of_every_part_and_no_other() -> None:
    rights = []
    for line in PAGE[PAGE.index("| Part |") :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        part, verbs, resource, group, where = (cell.strip() for cell in line.strip("|").split("|"))
        namespace = where.removeprefix("the namespace ").strip("`") if where != "the whole cluster" else ""
        for verb in verbs.split(", "):
            right = Right(verb=verb, resource=resource, group="" if group == "core" else group, namespace=namespace)
            rights.append((Part(part), right))
    assert rights == [(part, right) for part, rights in PART_RIGHTS.items() for right in rights]


def test_its_manifests_grant_exactly_what_serving_needs() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    granted = {
        Right(verb=verb, resource=resource, group=group, namespace=document["metadata"].get("namespace", ""))
        for document in yaml.safe_load_all(block)
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == set(rights_of(feature for feature in Feature if feature is not Feature.DOCTOR))
