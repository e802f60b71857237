"""Every convolution and product of every bundled config has a plan of cuDNN for each recorded card.

It runs where MXRUN_CUDNN names a folder with cuDNN's wheel. A product in bfloat16 is compiled for
its sizes, which takes 0.3 to 1 s.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from commands import CONFIGS
from cudnn import needs_cudnn, planned_products

pytestmark = [pytest.mark.soak, needs_cudnn]

NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("config", NAMES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("card", ["h100", "b200", "a100"])
def test_a_config_is_planned(
    config: str, precision: str, card: str, record_property: Callable[[str, object], None]
) -> None:
    products = planned_products(config, precision, card)
    assert products.launches
    assert products.elsewhere == []
    plans = {launch.plan.text: launch.plan for launch in products.launches}.values()
    record_property("launches", len(products.launches))
    low = sum(launch.plan.graph.is_low for launch in products.launches)
    record_property("of them in bfloat16", low)
    record_property("plans", len(plans))
    record_property("bytes of workspace", max(each.workspace_bytes for each in plans))
    record_property("bytes of JSON", sum(len(each.text) for each in plans))
