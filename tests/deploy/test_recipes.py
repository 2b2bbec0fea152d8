"""Each plain manifest has a recipe by which it is rendered from the chart. That it is current is judged with helm."""

from __future__ import annotations

import yaml

from tests.deploy.manifests import DEPLOY

RECIPES = DEPLOY / "helm" / "plain"
TEMPLATES = DEPLOY / "helm" / "cloudgraft" / "templates"


def test_every_manifest_has_a_recipe() -> None:
    manifests = {path.relative_to(DEPLOY) for path in (*DEPLOY.glob("*.yaml"), *DEPLOY.glob("liqo/*.yaml"))}
    rendered = {path for path in manifests if path.name != "kustomization.yaml"}
    assert {path.relative_to(RECIPES) for path in RECIPES.rglob("*.yaml")} == rendered


def test_recipes_use_every_template_that_is_not_for_helm_alone() -> None:
    used = {one for path in RECIPES.rglob("*.yaml") for one in yaml.safe_load(path.read_text())["templates"]}
    there = {str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.yaml")}
    assert there - used == {
        "certificates/job.yaml",
        "dock/dock.yaml",
        "dock/service.yaml",
        "monitoring/dashboards.yaml",
        "monitoring/service-monitor.yaml",
        "simcloud/simcloud.yaml",
    }


def test_manifests_say_where_they_come_from() -> None:
    for path in RECIPES.rglob("*.yaml"):
        text = (DEPLOY / path.relative_to(RECIPES)).read_text()
        head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
        assert text.startswith(f"{head}# Rendered from deploy/helm/cloudgraft by scripts/render_manifests.py"), path
