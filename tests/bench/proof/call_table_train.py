"""Calls of check with good and wrong configs, train, runs and plot."""

from __future__ import annotations

from collections.abc import Mapping

from proof.call_files import npy, npz
from proof.call_group import Content, Group

# Ten steps an epoch on 160 records of 12 numbers in three classes.
NET = """# A small network.
name: net
seed: 3
threads: 1
network:
  inputs: {data: [12], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 16}
    - Activation: {name: relu1, act_type: relu}
    - FullyConnected: {name: fc2, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 16
  train: {dataset: npz, path: rows.npz, split: {share: 0.8}, shuffle: true}
  eval: {dataset: npz, split: rest}
train:
  epochs: 2
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  metrics: [accuracy, cross_entropy, {f1: {average: macro}}]
"""
ROWS = npz(1, 200, 12)


def _changed(*pairs: tuple[str, str]) -> str:
    """The small network's config with texts replaced."""
    text = NET
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"{old} is not in the config")
        text = text.replace(old, new)
    return text


_WRONG: Mapping[str, str] = {
    "syntax": _changed(("inputs: {", "inputs: [")),
    "tabs": _changed(("  epochs", "\tepochs")),
    "duplicate": NET + "seed: 4\n",
    "list": "- a\n- b\n",
    "empty": "",
    "keys": _changed(
        ("seed", "sead"),
        ("batch_size", "batchsize"),
        ("epochs: 2", "epoch: 2"),
        ("momentum", "momentun"),
        ("num_hidden: 16", "num_hiden: 16"),
        ("shuffle", "shufle"),
    ),
    "values": _changed(
        ("seed: 3", "seed: -1"),
        ("threads: 1", "threads: many"),
        ("batch_size: 16", "batch_size: 0"),
        ("epochs: 2", "epochs: 2.5"),
        ("act_type: relu", "act_type: rely"),
        ("num_hidden: 16", "num_hidden: x"),
        ("lr: 0.1", "lr: [1]"),
    ),
    "kinds": _changed(
        ("SoftmaxOutput", "SoftmaxOuptut"),
        ("sgd", "sdg"),
        ("accuracy, cross_entropy, {f1: {average", "acuracy, {f1: {averag"),
        ("dataset: npz, split: rest", "dataset: npx"),
    ),
    "names": _changed(("name: relu1", "name: fc1"), ("label: label", "label: lable")),
    "shapes": _changed(
        ("- Activation: {name: relu1, act_type: relu}", "- Convolution: {num_filter: 4, kernel: 3}")
    ),
    "loss": _changed(("    - SoftmaxOutput: {name: softmax, label: label}\n", "")),
    "missing": "name: missing\nnetwork: {inputs: {data: [3]}}\n",
    "context": _changed(("threads: 1", "context: gpu\nimplementation: cudnn\nprecision: half")),
    "schedule": _changed(("epochs: 2", "epochs: 2\n  schedule: {step: {every: 0}, cosine: {}}")),
    "checkpoint": _changed(
        ("epochs: 2", "epochs: 2\n  checkpoint: {every: 1 day, keep: 0, best: nothing}")
    ),
    "split": _changed(("{share: 0.8}", "{share: 1.5, range: [5, 2], of: 3}")),
    "transforms": _changed(("shuffle: true", "transforms: [{flp: {}}, {resize: {sizes: 3}}]")),
    "memory": NET + "memory: {budget: 10 XB, micro_batch: true}\n",
    "budget": NET + "memory: {budget: 100 B}\n",
    "plugins": NET + "plugins: [missing.py, a.txt]\n",
    "broken_plugin": NET + "plugins: [broken.py]\n",
    "extends": "extends: nothing\nname: a\n",
    "blocks": _changed(
        (
            "network:",
            "blocks:\n  dense:\n    parameters: {units: null}\n    layers:\n"
            '      - FullyConnected: {name: fc, num_hidden: "${unit * 2}"}\nnetwork:',
        ),
        ("- FullyConnected: {name: fc1, num_hidden: 16}", "- dense: {name: d, unit: 3}"),
    ),
}

_CHECKS = """
check net.yaml
check net.yaml --json
check net.yaml data.batch_size=256 name=other
check net.yaml train.optimiser=3
check net.yaml data.batch_size=x train.epochs=-1 --json
check net.yaml train.epochs
check gpt_tiny
check lstm_tiny --json
check nothing
check nothing.yaml --json
check digits_lent
check folder
check trusted.yaml
check trusted.yaml --allow-plugins
check trusted.yaml --json
"""

_TRAIN = """
train net.yaml
train net.yaml
train net.yaml --json
train net.yaml --overwrite --json
train net.yaml train.epochs=3 --resume
train net.yaml train.epochs=3 --resume --allow-changes
train net.yaml train.epochs=3 --resume --json
train net.yaml data.batch_size=8 name=small train.log_every=7 --runs elsewhere
MXRUN_RUNS=elsewhere train net.yaml name=named --json
train net.yaml name=profiled --profile --trace trace.json
train net.yaml name=big --batch 40
train net.yaml name=stopped train.epochs=30 "train.early_stopping={metric: accuracy, patience: 1}"
train net.yaml name=best "train.checkpoint={every: 5 steps, keep: 2, best: loss}" train.average=0.9
train net.yaml name=warm "train.start_from={run: runs/net, load: ['fc1*']}" --json
train net.yaml name=cold "train.start_from={run: runs/nothing}"
train net.yaml name=strict "train.start_from={run: runs/net, load: ['nothing*']}"
train net.yaml name=weighted train.class_weights=balanced train.accumulate=2
train net.yaml name=rates "train.schedule={cosine: {warmup_steps: 4}}" data.last_batch=discard
train net.yaml name=budget "memory.budget=90%"
train net.yaml name=largest "memory.budget=40 KiB" --batch max
train net.yaml name=two context=[cpu:0,cpu:1] --json
train net.yaml name=wild train.optimizer.sgd.lr=1e30
train net.yaml name=nowhere data.train.path=nothing.npz
train net.yaml name=shape data.train.path=other.npz
train net.yaml name=short data.train.path=short.npz
train net.yaml name=text data.train.path=net.yaml
train net.yaml name=many data.batch_size=100000
train net.yaml name=steps train.max_steps=7 train.epochs=null
train net.yaml name=a/b
train net.yaml name=traced --trace nowhere/trace.json
train stopping.yaml
train stopping.yaml
train stopping.yaml --resume
train stopping.yaml name=other --json
train synthetic.yaml --json
train mlp_regression train.epochs=2 threads=1
runs
runs --json
runs --sort accuracy
runs --sort loss --json
runs --sort nothing
runs net best
runs net best --json
runs runs/net elsewhere/small
runs nothing
runs --runs elsewhere
runs --runs nowhere --json
MXRUN_RUNS=elsewhere runs
plot runs/net
plot net.yaml
plot runs/net runs/best --json
plot runs/net --svg curves.svg --log
plot runs/net --svg linear.svg --linear
plot net.yaml data.batch_size=1 --svg net.svg
plot net.yaml --dot net.dot
plot net.yaml --json
plot gpt_tiny --depth 1
plot gpt_tiny --depth all --json
plot Convolution no_bias=true
plot relu --json
plot nothing
plot runs/nothing
plot net.yaml --svg nowhere/net.svg
plot small --runs elsewhere
"""

# A layer that ends the run from inside, at a certain step.
_STOPPING_PLUGIN = '''"""The identity; its 13th call in training asks the process to end."""

import os
import signal

import numpy as np

from mxrun.operator.simple import reads_inputs, simple_operator

calls = 0


def gradient(env, out_grad, x):
    """The gradient of the identity."""
    global calls
    calls += 1
    if calls == 13:
        os.kill(os.getpid(), signal.SIGTERM)
    return out_grad


@simple_operator("stopping", gradient=reads_inputs(gradient))
def stopping(env, x):
    """output = data."""
    return np.array(x)
'''

_STOPPING = _changed(
    ("name: net", "name: stopping\nplugins: [stopping.py]"),
    ("- Activation: {name: relu1, act_type: relu}", "- stopping: {name: stop}"),
)
_SYNTHETIC = _changed(
    ("name: net", "name: synthetic"),
    ("dataset: npz, path: rows.npz, split: {share: 0.8}", "dataset: npz"),
    ("  eval: {dataset: npz, split: rest}\n", ""),
)

_DAMAGED = """
train net.yaml
@copy runs/net runs/cut
@cut runs/cut/checkpoint-*/parameters.safetensors 100
infer runs/cut rows.npy
evaluate runs/cut --json
infer runs/cut rows.npy --checkpoint 20
train net.yaml name=cut train.epochs=3 --resume
@copy runs/net runs/flipped
@flip runs/flipped/checkpoint-*/parameters.safetensors -5
infer runs/flipped rows.npy
train net.yaml name=flipped train.epochs=3 --resume --json
@copy runs/net runs/optimizer
@remove runs/optimizer/checkpoint-*/optimizer.safetensors
train net.yaml name=optimizer train.epochs=3 --resume
infer runs/optimizer rows.npy
@copy runs/net runs/manifest
@cut runs/manifest/checkpoint-*/manifest.json 40
infer runs/manifest rows.npy --json
runs
@copy runs/net runs/config
@replace runs/config/config.yaml "num_hidden: 16" "num_hidden: 17"
infer runs/config rows.npy
infer runs/config rows.npy --allow-changes
evaluate runs/config --allow-changes
convert runs/config -o a.onnx
@copy runs/net runs/seed
@replace runs/seed/config.yaml "seed: 3" "seed: 4"
infer runs/seed rows.npy --allow-changes --json
convert runs/seed -o seed.onnx --allow-changes
@copy runs/net runs/empty
@remove runs/empty/checkpoint-*
@remove runs/empty/checkpoint-*
infer runs/empty rows.npy
evaluate runs/empty
convert runs/empty -o a.onnx
train net.yaml name=empty
runs --json
@copy runs/net runs/metrics
@cut runs/metrics/metrics.jsonl 30
runs metrics
plot runs/metrics
train net.yaml name=metrics train.epochs=3 --resume
@copy runs/net runs/summary
@cut runs/summary/summary.json 30
runs --sort loss
infer runs/net rows.npy --checkpoint 1
infer runs/net rows.npy --checkpoint nothing
inspect-memory runs/config
"""

_FILES: Mapping[str, Content] = {
    "net.yaml": NET,
    "rows.npz": ROWS,
    "other.npz": npz(2, 60, 11),
    "short.npz": npz(3, 4, 12),
    "stopping.yaml": _STOPPING,
    "stopping.py": _STOPPING_PLUGIN,
    "synthetic.yaml": _SYNTHETIC,
}

TRAIN: Mapping[str, Group] = {
    "check": Group(
        _CHECKS + "\n".join(f"check {name}.yaml" for name in _WRONG) + "\ncheck keys.yaml --json",
        {
            "net.yaml": NET,
            "rows.npz": ROWS,
            "broken.py": "import nothing_of_this_name\n",
            "folder/net.yaml": NET,
            "folder/plugin.py": "",
            "folder/plugged.yaml": NET + "plugins: [plugin.py]\n",
            "trusted.yaml": "extends: folder/plugged.yaml\n",
            **{f"{name}.yaml": text for name, text in _WRONG.items()},
        },
    ),
    "train": Group(_TRAIN, _FILES),
    "damaged runs": Group(_DAMAGED, {"net.yaml": NET, "rows.npz": ROWS, "rows.npy": npy(5, 3, 12)}),
}
