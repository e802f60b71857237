"""Calls that explain: help, docs, ops, show, schema, engine, info; and wrong command lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from proof.call_group import Group

_INDEX = Path(__file__).parents[3] / "mxrun" / "base" / "index.json"
_COMMANDS = json.loads(_INDEX.read_bytes())["command"]

_USAGE = """
export net.yaml
inspect net.yaml
xyzzy
datasets
datasets download mnist
datasets xyzzy --json
train
train --json
train digits_lenet --epochs 5
train digits_lenet --lr 5
train digits_lenet --gpu
train digits_lenet --resum
train digits_lenet --foo --json
train digits_lenet --batch 0
train digits_lenet --batch many
train digits_lenet --resume --overwrite
train digits_lenet --allow-changes
evaluate
evaluate digits_lenet
evaluate nothing
evaluate digits_lenet --errors -1
infer
infer runs/a
infer runs/a a.png b.png --split eval
infer runs/a a.png --json --to f.npy
infer runs/a a.png --json --output csv
infer runs/a a.png --to f.foo
infer runs/a a.png --to results
infer runs/a a.png --to f.csv --output table
infer runs/a a.png --to f.npy --top 2
infer runs/a a.png --outputs fc1,,fc2
infer runs/a a.png --top 0
infer runs/a --length 5
infer runs/a --prompt x --prompts y
infer runs/a --prompt x a.png --top 2 --to f.csv
infer runs/a --prompt x --batch max
infer runs/a --prompt x --top-p 0
infer runs/a --prompt x --temperature inf
infer runs/a --prompt x --temperature 0 --top-k 3 --json
inspect-memory
inspect-memory a.yaml --problem b.csv
inspect-memory a.yaml --time-limit 3
inspect-memory a.yaml --what-if --diff b.yaml
inspect-memory a.yaml --length 3
inspect-memory a.yaml --fail-above much
bench digits_lenet --phase test
bench digits_lenet --against pytorch
bench digits_lenet --against torch --peer-python torch=nowhere
bench digits_lenet --peer-python torch
bench digits_lenet --steps 0
convert digits_lenet
pack a
pack a b.zip
pack a b.rec --channels 2 --quality 101
pack a b.rec --shards 2 --shard-size 1MiB
plot digits_lenet --log
plot digits_lenet --svg a.svg --dot a.dot
plot digits_lenet --depth 0
runs --sort
verify digits_lenet --steps 0
engine
engine nothing.yaml --workers 0
"""

_KEYS = """
help
help --json
help data.train.transforms.normalize
help momentum
help learning_rate
help optimizers
help Convolution.num_filter
help memory.budget --json
help sgd
help f1 --json
help train.checkpoint
help bench
help datasets fetch
help nonsense
help nonsense --json
help train.optimiser
docs
docs --json
docs first_network
docs memory --json
docs nothing
docs nothing --json
schema
schema --json
ops
ops --json
ops Convolution
ops Convolution kernel=[5,5] no_bias=true
ops SoftmaxOutput --json
ops BatchNorm momentum=2
ops Convolution kernel=3,x
ops Convolutoin
ops Convolution colour=red --json
ops swish.py:swish
ops swish.py:nothing
ops missing.py:swish
show
show --json
show digits_lenet
show digits_lenet --json
show gpt_tiny --resolved
show child.yaml
show child.yaml --resolved
show nothing
show nothing.yaml --json
info
info --json
check-op relu
check-op softmax axis=1 --json
check-op swish.py:swish
check-op swish.py:swish scalar=3
check-op swish.py:wrong
check-op swish.py:wrong --json
check-op nothing
check-op relu scale=3
"""

_SWISH = '''"""Two activations of our own; the gradient of one is wrong."""

from mxrun.operator.scalar import sigmoid
from mxrun.operator.simple import reads_inputs, simple_operator


def swish_gradient(out_grad, x, scalar):
    """The product rule."""
    gate = sigmoid(scalar * x)
    return out_grad * gate * (1 + scalar * x * (1 - gate))


@simple_operator("swish", gradient=reads_inputs(swish_gradient), scalar=1.0)
def swish(x, scalar):
    """output = data * sigmoid(scalar * data)."""
    return x * sigmoid(scalar * x)


def wrong_gradient(out_grad, x, scalar):
    """Half of the derivative."""
    return out_grad * scalar / 2


@simple_operator("wrong", gradient=reads_inputs(wrong_gradient), scalar=1.0)
def wrong(x, scalar):
    """output = scalar * data."""
    return scalar * x
'''

_CHILD = """
extends: digits_lenet
name: child
train: {epochs: 2}
"""

_JOBS = """
workers: 1
jobs:
  - name: fetch
    run: |
      printf 'pear 3\\napple 5\\n' > raw.txt
      echo "2 lines"
    writes: [raw.txt]
  - name: sort
    run: sort raw.txt > sorted.txt
    reads: [raw.txt]
    writes: [sorted.txt]
  - name: total
    python: |
      lines = open("raw.txt").read().splitlines()
      open("total.txt", "w").write(str(sum(int(line.split()[1]) for line in lines)))
    reads: [raw.txt]
    updates: [total.txt]
"""

_FAILING = """
workers: 1
jobs:
  - {name: make, run: "echo before; echo problem >&2; exit 3", writes: [a]}
  - {name: use, run: "cat a", reads: [a], writes: [b]}
  - {name: other, run: "echo fine", writes: [c]}
"""

_BAD_JOBS = """
worker: 2
jobs:
  - {name: a, run: "true", python: "1", reads: x}
  - {name: a, writes: [y]}
  - {run: 3}
"""

_ENGINE = """
engine jobs.yaml
engine jobs.yaml --workers 1 --json
engine jobs.yaml --engine naive --verbose
engine jobs.yaml --workers 1 --trace trace.json
engine failing.yaml
engine failing.yaml --json
engine bad.yaml
engine bad.yaml --json
engine empty.yaml
engine missing.yaml
engine jobs.yaml --workers 1 --trace nowhere/trace.json
"""

HELP: Mapping[str, Group] = {
    "help texts": Group(
        "--version\n--help\n-h\n" + "\n".join(f"{each} --help" for each in _COMMANDS)
    ),
    "wrong command lines": Group(_USAGE),
    "explanations": Group(_KEYS, {"swish.py": _SWISH, "child.yaml": _CHILD}),
    "engine": Group(
        _ENGINE,
        {"jobs.yaml": _JOBS, "failing.yaml": _FAILING, "bad.yaml": _BAD_JOBS, "empty.yaml": ""},
    ),
}
