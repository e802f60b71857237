"""A folder of small images with a config that reads it, and damage to some of them."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

CONFIG = """
name: photos
network:
  inputs: {{data: [3, 8, 8], label: []}}
  layers: [{{FullyConnected: {{num_hidden: 2}}}}, SoftmaxOutput: {{label: label}}]
data:
  batch_size: 4
  train:
    {{dataset: image_folder, path: photos, split: all, shuffle: true, transforms: [{transforms}]}}
  eval: {{dataset: image_folder, split: all}}
train: {{epochs: 1, optimizer: {{sgd: {{lr: 0.1}}}}}}
"""
COLORS = {"blue": (0, 0, 255), "red": (255, 0, 0)}


def write_photos(folder: Path) -> Path:
    """Write a folder with ten images of two classes, and the config photos.yaml."""
    for kind, color in COLORS.items():
        (folder / "photos" / kind).mkdir(parents=True)
        for number in range(5):
            size = (8 + number, 8)
            Image.new("RGB", size, color).save(folder / "photos" / kind / f"{number}.png")
    text = CONFIG.format(transforms="{resize: {size: [8, 8]}}, flip, {normalize: {mean: 0.5}}")
    (folder / "photos.yaml").write_text(text)
    return folder


def damage(folder: Path) -> None:
    """Damage the images blue/1.png and red/3.png."""
    (folder / "photos/blue/1.png").write_bytes(b"")
    content = (folder / "photos/red/3.png").read_bytes()
    (folder / "photos/red/3.png").write_bytes(content[:40])
