"""Decides the values of the Helm chart that fit a configuration file. Pure: reads no file and calls no program."""

from cloudgraft.deploy.draft import Choices
from cloudgraft.deploy.render import Rendering, render

__all__ = ["Choices", "Rendering", "render"]
