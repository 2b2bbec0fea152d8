"""Rules of NodeGroupTemplateNodeInfo (R65 to R72)."""

from __future__ import annotations

from cloudgraft.conformance.rules.rule import Level, Rule

__all__ = ["RULES"]

RULES = (
    Rule(
        id="R65",
        title="The template is a whole core/v1 Node in bytes; OK without one is no answer",
        level=Level.MUST,
        why="OK without a node crashes the autoscaler, in every release.",
        fix="Marshal the Node without the k8s prefix, into both fields of the reply (1 and 2).",
    ),
    Rule(
        id="R66",
        title="Every group has a template that every release can read",
        level=Level.MUST,
        why="Up to 1.34 one group without a template stops the scale-up of all groups, in old releases every loop.",
        fix="Describe the node of each group; write the same bytes into the old field and the new one.",
    ),
    Rule(
        id="R67",
        title="The template counts only until the group has had a ready node",
        level=Level.NOTE,
        why="A change of the template seems to have no effect until the autoscaler restarts.",
        fix="Keep it true to the real nodes, and restart the autoscaler after changing it.",
        unobservable="The autoscaler keeps that node in its own memory; the server is just not asked any more.",
    ),
    Rule(
        id="R68",
        title="Allocatable has cpu, memory and pods; capacity of cpu and memory is above zero",
        level=Level.MUST,
        why="Without pods nothing fits and the group never leaves zero; expanders divide by the capacity.",
        fix="Fill capacity and allocatable with cpu, memory, pods and what pods ask for (storage, GPUs).",
    ),
    Rule(
        id="R69",
        title="The template has the labels that real nodes get",
        level=Level.SHOULD,
        why="Pods with a node selector or an affinity to a zone, an architecture or a type never start a node here.",
        fix="Set arch, os, zone, region, instance type and your own labels as the nodes will have them.",
    ),
    Rule(
        id="R70",
        title="The template has the lasting taints only, is schedulable, and has no providerID",
        level=Level.SHOULD,
        why="An unschedulable template never fits a pod; a providerID makes planned nodes look like a real one.",
        fix="Leave spec.unschedulable and spec.providerID empty, and condition and deletion taints out.",
    ),
    Rule(
        id="R71",
        title="DaemonSet pods are added by the autoscaler; what static pods use is taken off allocatable by the server",
        level=Level.NOTE,
        why="A node that is fuller than its template makes pods wait after the scale-up.",
        fix="Subtract what static pods and the system need from allocatable.",
        unobservable="What static pods will use on a node that does not exist yet is known to its image alone.",
    ),
    Rule(
        id="R72",
        title="Groups are balanced only when template and real nodes agree in labels and sizes",
        level=Level.NOTE,
        why="Zones fill unevenly when the autoscaler does not see that two groups are alike.",
        fix="Keep labels and resources of the template equal to those of the nodes.",
        unobservable="It compares nodes that run in the cluster; the kit sees only the template.",
    ),
)
