"""The picture of how the cost of a call grows."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from bench.growth_measure import Curve, Growth
from bench.growth_picture import draw, growth_as_json

GROWTHS = [
    Growth(
        along="nodes & more",
        figure="µs",
        curves=[
            Curve(kind="go", points=[(100, 180.0), (1_000, 190.0), (10_000, 210.0)]),
            Curve(kind="native", points=[(100, 90.0), (1_000, 95.0), (10_000, 99.0)]),
        ],
    )
]


def test_a_lower_figure_lies_lower_and_all_points_lie_inside() -> None:
    root = ET.fromstring(draw(GROWTHS))  # also: it is well formed, whatever the captions say
    circles = [
        {key: float(circle.attrib[key]) for key in ("cx", "cy")}
        for circle in root.iter()
        if circle.tag.endswith("circle")
    ]
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert all(0 < one["cx"] < width and 0 < one["cy"] < height for one in circles)
    go, native = circles[:3], circles[3:]
    assert all(lower["cy"] > higher["cy"] for lower, higher in zip(native, go, strict=True))
    assert [one["cx"] for one in go] == sorted(one["cx"] for one in go) == [one["cx"] for one in native]


def test_a_program_gets_the_figures() -> None:
    (growth,) = json.loads(growth_as_json(GROWTHS))
    assert growth["curves"][1]["points"][0] == [100, 90.0]
