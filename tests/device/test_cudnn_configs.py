"""Products of bundled configs have plans of cuDNN for recorded cards: a sample.

`tests/soak/test_cudnn_configs.py` has all configs in both precisions for all cards.
"""

from __future__ import annotations

import pytest
from cudnn import needs_cudnn, planned_products

pytestmark = needs_cudnn


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ("digits_lenet", "float32"),
        ("resnet20_cifar10", "float32"),
        ("gpt_tiny", "float32"),
        ("lstm_tiny", "bfloat16"),
        ("mobilenetv2_imagenet", "float32"),
    ],
)
def test_a_config_is_planned(config: str, precision: str) -> None:
    products = planned_products(config, precision, "h100")
    assert products.launches
    assert products.elsewhere == []


@pytest.mark.parametrize("card", ["a100", "b200", "h100"])
def test_a_large_network_is_planned_for_each_card(card: str) -> None:
    products = planned_products("resnet50_imagenet", "float32", card)
    assert len(products.launches) > 200
    assert products.elsewhere == []
