"""Programs on key-value stores that give the same results in MXNet 1.9.1 and in mxrun."""

from __future__ import annotations

from functools import cache

import pytest
from mxnet_programs import Outcome, assert_equal_outcomes, mxnets_outcomes, our_outcome

KINDS = ("local", "device")

START = """
def ones(value=1.0, device=0):
    return nd.ones((2, 3), ctx=cpu(device)) * value

def pulled(key, device=0):
    out = nd.zeros((2, 3), ctx=cpu(device))
    store.pull(key, out=out)
    return out

store = kv.create(kind)
"""

PROGRAMS = {
    "initial value": "store.init(3, ones(2)); show(pulled(3))",
    "push replaces": "store.init(3, ones()); store.push(3, ones(8)); show(pulled(3))",
    "push adds devices": "store.init('w', ones()); store.push('w', [ones(2), ones(3, 1)]);"
    "show(pulled('w'), pulled('w', 1))",
    "four devices": "store.init(0, ones()); store.push(0, [ones(k, k) for k in range(4)]);"
    "show(pulled(0))",
    "one array twice": "g = ones(2); store.init(0, ones()); store.push(0, [g, g]); show(pulled(0))",
    "keys and values": "store.init([5, 7], [ones(5), ones(7)]); show(pulled(7), pulled(5))",
    "keys with devices": "store.init(['a', 'b'], [ones(), ones()]);"
    "store.push(['b', 'a'], [[ones(1), ones(2, 1)], [ones(3), ones(4, 1)]]);"
    "outs = [[ones(0), ones(0, 1)] for _ in 'ab']; store.pull(['a', 'b'], out=outs);"
    "show(*outs[0], *outs[1])",
    "one key twice": "store.init([3, 9], [ones(), ones()]);"
    "store.push([9, 3, 9], [ones(1), ones(2), ones(3)]); show(pulled(9), pulled(3))",
    "negative key": "store.init(-1, ones(4)); show(pulled(-1))",
    "no keys": "store.init(3, ones()); store.push([], []); show(pulled(3))",
    "no values": "store.init(3, ones()); store.push(3, []); show(pulled(3))",
    "init copies": "a = ones(1); store.init(3, a); a[:] = 5; show(pulled(3))",
    "pushpull": "out = ones(0); store.init(3, ones()); store.pushpull(3, ones(7), out=out);"
    "show(out, pulled(3))",
    "pushpull in place": "a = [ones(7), ones(1, 1)]; store.init(3, ones());"
    "store.pushpull(3, a); show(*a)",
    "broadcast": "outs = [ones(0), ones(0, 1)]; store.broadcast(3, ones(7), out=outs);show(*outs)",
    "broadcast of keys": "outs = [[ones(0)], [ones(0)]];"
    "store.broadcast([3, 4], [ones(7), ones(8)], out=outs); show(outs[0][0], outs[1][0])",
    "integers": "store.init(1, nd.ones((3,), dtype='int32'));"
    "store.push(1, [nd.ones((3,), dtype='int32')] * 3); out = nd.zeros((3,), dtype='int32');"
    "store.pull(1, out=out); show(out)",
    "facts": "show(store.type, store.rank, store.num_workers, store.is_capable('optimizer'));"
    "store.barrier()",
    "updater": "def update(key, pushed, stored):\n"
    "    show(key, pushed, stored)\n"
    "    stored += pushed * 2\n"
    "store.init([3, 4], [ones(), ones()])\n"
    "store.set_updater(update)\n"
    "store.push([3, 4], [[ones(2), ones(3, 1)], [ones(5)]])\n"
    "store.push(3, ones())\n"
    "show(pulled(3), pulled(4))",
    "updater of string keys": "store.init('w', ones());"
    "store.set_updater(lambda key, pushed, stored: show(key)); store.push('w', ones());"
    "show(pulled('w'))",
    "optimizer": "store.init('w', ones());"
    "store.set_optimizer(optimizer.create('sgd', learning_rate=0.5, momentum=0.9, wd=0.1))\n"
    "for value in (1, -2, 3): store.push('w', [ones(value), ones(0.5, 1)])\n"
    "show(pulled('w'))",
    "multipliers": "sgd = optimizer.create('sgd', learning_rate=0.5, wd=0.1, rescale_grad=0.25,"
    "    param_idx2name={0: 'fc_weight', 1: 'fc_bias', 2: 'last_weight'}, clip_gradient=0.2)\n"
    "sgd.set_lr_mult({'last_weight': 3.0})\n"
    "sgd.set_wd_mult({'last_weight': 2.0})\n"
    "store.init([0, 1, 2], [ones(2)] * 3)\n"
    "store.set_optimizer(sgd)\n"
    "for value in (1, -2): store.push([0, 1, 2], [ones(value)] * 3)\n"
    "show(pulled(0), pulled(1), pulled(2), sgd.learning_rate)",
    "scheduler": "sgd = optimizer.create('sgd', learning_rate=1.0,"
    "    lr_scheduler=type('Halves', (), {'base_lr': 0, '__call__': lambda self, count:"
    "    self.base_lr / 2 ** count})())\n"
    "store.init(0, ones(2)); store.set_optimizer(sgd)\n"
    "for _ in range(3): store.push(0, ones()); show(sgd.learning_rate, sgd.num_update)\n"
    "show(pulled(0))",
    "second init": "store.init(3, ones()); store.init(3, ones())",
    "second init by broadcast": "store.init(3, ones()); store.broadcast(3, ones(), out=ones())",
    "key twice in init": "store.init([3, 3], [ones(), ones()])",
    "list of values in init": "store.init(3, [ones(), ones()])",
    "unknown key in push": "store.init(3, ones()); store.push(4, ones())",
    "unknown key in pull": "store.init(3, ones()); pulled(4)",
    "string after integer": "store.init(3, ones()); store.init('a', ones())",
    "integer after string": "store.init('a', ones()); store.push(0, ones())",
    "mixed keys": "store.init(['a', 1], [ones(), ones()])",
    "too many values": "store.init([1, 2], [ones()] * 3)",
    "another shape in push": "store.init(3, ones()); store.push(3, nd.ones((3, 2)));"
    "show(pulled(3))",
    "another shape in pull": "store.init(3, ones()); store.pull(3, out=nd.zeros((6,)))",
    "fractional key": "store.init(1.5, ones())",
    "no arrays": "store.init(3, ones()); store.push(3, 1.0)",
    "nowhere to pull": "store.init(3, ones()); store.pull(3)",
    "no optimizer to save": "store.init(3, ones()); store.save_optimizer_states('states')",
    "sparse": "store.init(3, ones());store.row_sparse_pull(3, out=ones(), row_ids=nd.array([0]))",
}


CASES = {
    (kind, name): f"kind = {kind!r}\n{START}{PROGRAMS[name]}" for kind in KINDS for name in PROGRAMS
}


@cache
def mxnets() -> dict[tuple[str, str], Outcome]:
    return dict(zip(CASES, mxnets_outcomes(list(CASES.values())), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_mxnets_results(name: str, kind: str) -> None:
    assert_equal_outcomes(our_outcome(CASES[kind, name]), mxnets()[kind, name])
