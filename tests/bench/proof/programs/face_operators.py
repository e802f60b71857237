"""Every operator as a function on arrays, forward and backward.

python face_operators.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from face_facts import FACTS, note, numbers, write

import mxrun
from mxrun import autograd, nd, sym

LABELS = np.array([0, 2, 1, 1], np.int32)
IMAGES = (2, 3, 6, 5)
# Name of the operator: (shapes or arrays of its inputs, its parameters), one or several.
CASES: dict[str, Sequence[tuple[Sequence[Any], dict[str, Any]]]] = {
    "Activation": [(((4, 5),), {"act_type": kind}) for kind in ("relu", "sigmoid", "softrelu")],
    "BatchNorm": [
        ((IMAGES, (3,), (3,), (3,), (3,)), {"fix_gamma": fix, "eps": 1e-3}) for fix in (True, False)
    ],
    "Cast": [(((4, 5),), {"dtype": kind}) for kind in ("float64", "int32", "float16")],
    "Concat": [(((2, 3), (2, 4), (2, 1)), {"dim": 1}), (((2, 3), (1, 3)), {"dim": 0})],
    "Convolution": [
        ((IMAGES, (4, 3, 3, 3), (4,)), {"num_filter": 4, "kernel": (3, 3), "pad": (1, 1)}),
        (
            (IMAGES, (3, 1, 3, 2)),
            {"num_filter": 3, "num_group": 3, "kernel": (3, 2), "stride": (2, 1), "no_bias": True},
        ),
    ],
    "Deconvolution": [
        ((IMAGES, (3, 2, 3, 3)), {"num_filter": 2, "kernel": (3, 3), "stride": (2, 2)})
    ],
    "Dropout": [(((40, 5),), {"p": 0.4})],
    "Embedding": [((LABELS, (3, 5)), {"input_dim": 3, "output_dim": 5})],
    "FullyConnected": [
        (((4, 5), (3, 5), (3,)), {"num_hidden": 3}),
        (((2, 4, 5), (3, 5)), {"num_hidden": 3, "flatten": False, "no_bias": True}),
    ],
    "LRN": [((IMAGES,), {"nsize": 3})],
    "LayerNorm": [(((4, 6), (6,), (6,)), {})],
    "RMSNorm": [(((4, 6), (6,)), {})],
    "LeakyReLU": [(((4, 5),), {"act_type": kind}) for kind in ("leaky", "elu", "gelu")]
    + [(((4, 5), (5,)), {"act_type": "prelu"})],
    "LinearRegressionOutput": [(((4, 3), (4, 3)), {"grad_scale": 2.0})],
    "LogisticRegressionOutput": [(((4, 3), (4, 3)), {})],
    "MAERegressionOutput": [(((4, 3), (4, 3)), {})],
    "MakeLoss": [(((4, 3),), {"normalization": "batch"})],
    "Pooling": [
        ((IMAGES,), {"pool_type": kind, "kernel": (3, 2), "stride": (2, 2), "pad": (1, 0)})
        for kind in ("max", "avg", "sum")
    ]
    + [((IMAGES,), {"global_pool": True, "kernel": (1, 1)})],
    "RNN": [
        (
            ((5, 2, 3), (size,), (1, 2, 4), *(((1, 2, 4),) if mode == "lstm" else ())),
            {"mode": mode, "state_size": 4, "num_layers": 1},
        )
        for mode, size in (("rnn_tanh", 36), ("gru", 108), ("lstm", 144))
    ],
    "Reshape": [(((4, 6),), {"shape": shape}) for shape in ((-1, 3), (0, -1, 2), (-3,))],
    "SequenceLast": [(((5, 4, 2), LABELS + 1), {"use_sequence_length": True})],
    "SequenceMask": [
        (((5, 4, 2), LABELS.astype(np.float32)), {"use_sequence_length": True, "value": 7.0})
    ],
    "SequenceReverse": [(((5, 4, 2), LABELS + 1), {"use_sequence_length": True})],
    "SliceChannel": [(((4, 6),), {"num_outputs": 3})],
    "SoftmaxOutput": [
        (((4, 3), LABELS), {"smooth_alpha": 0.1, "normalization": "batch"}),
        (((4, 3), LABELS), {"use_ignore": True, "ignore_label": 1}),
    ],
    "SwapAxis": [(((2, 3, 4),), {"dim1": 0, "dim2": 2})],
    "_contrib_interleaved_matmul_encdec_qk": [(((5, 2, 8), (3, 2, 16)), {"heads": 2})],
    "_contrib_interleaved_matmul_encdec_valatt": [(((3, 2, 16), (4, 5, 3)), {"heads": 2})],
    "_contrib_interleaved_matmul_selfatt_qk": [(((5, 2, 24),), {"heads": 2})],
    "_contrib_interleaved_matmul_selfatt_valatt": [(((5, 2, 24), (4, 5, 5)), {"heads": 2})],
    "add_n": [(((4, 5),) * 4, {})],
    "batch_dot": [(((2, 3, 4), (2, 5, 4)), {"transpose_b": True})],
    "broadcast_to": [(((1, 5),), {"shape": (4, 5)})],
    "clip": [(((4, 5),), {"a_min": 0.3, "a_max": 0.6})],
    "ctc_loss": [(((6, 4, 5), LABELS.reshape(4, 1) + 1), {})],
    "CTCLoss": [(((6, 4, 5), LABELS.reshape(4, 1) + 1), {"blank_label": "last"})],
    "dot": [
        (((4, 5), (5, 3)), {}),
        (((5, 4), (3, 5)), {"transpose_a": True, "transpose_b": True}),
    ],
    "expand_dims": [(((4, 5),), {"axis": 1})],
    "gated_activation": [(((4, 6),), {})],
    "moments": [(((4, 6),), {"axes": (1,)})],
    "norm": [(((4, 6),), {}), (((4, 6),), {"ord": 1, "axis": 1})],
    "one_hot": [((LABELS,), {"depth": 3})],
    "pick": [(((4, 3), LABELS), {"axis": 1})],
    "position_embedding": [(((2, 4, 6), (7, 6)), {"max_length": 7})],
    "rotary_embedding": [(((2, 4, 12),), {"num_heads": 2})],
    "scaled_dot_product_attention": [
        (((2, 4, 8),) * 3, {"num_heads": 2, "causal": causal}) for causal in (False, True)
    ],
    "slice": [(((4, 6),), {"begin": (1, 0), "end": (3, 5)})],
    "slice_axis": [(((4, 6),), {"axis": 1, "begin": 1, "end": -1})],
    "softmax_cross_entropy": [(((4, 3), LABELS), {})],
    "stack": [(((2, 3), (2, 3)), {"axis": 1})],
    "sum": [(((2, 3, 4),), {"axis": (0, 2)}), (((2, 3, 4),), {"axis": 1, "keepdims": True})],
    "take": [(((3, 5), LABELS), {})],
    "transpose": [(((2, 3, 4),), {"axes": (2, 0, 1)})],
    "where": [((LABELS.reshape(4, 1) * np.ones((1, 5), np.int32), (4, 5), (4, 5)), {})],
}
# Tried for operators without a case, until one fits.
USUAL: Sequence[tuple[Sequence[Any], dict[str, Any]]] = [
    *((((3, 5),) * count, {}) for count in (1, 2, 3)),
    (((3, 5),), {"scalar": 1.7}),
    (((4, 5), (5,)), {}),
]
_UPDATE = {"lr": 0.1, "wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.2}
# Of update operators, which have no gradient.
UPDATES: Sequence[tuple[Sequence[Any], dict[str, Any]]] = [
    *((((3, 5),) * count, _UPDATE | more) for more in ({}, {"eta": 0.9}) for count in (2, 3, 4, 5))
]


def compute(name: str, inputs: Sequence[Any], parameters: dict[str, Any]) -> list[Any]:
    """Return outputs, then the gradients of the float inputs and what the inputs are afterwards."""
    arrays = []
    for index, given in enumerate(inputs):
        is_shape = isinstance(given, tuple)
        values = numbers(f"{name}{index}", *given) if is_shape else given
        arrays.append(nd.array(values, dtype=values.dtype))
        if is_shape and not name.endswith("_update"):
            arrays[-1].attach_grad()
    mxrun.random.seed(3)
    with autograd.record():
        found = getattr(nd, name)(*arrays, **parameters)
    outputs = found if isinstance(found, (list, tuple)) else [found]
    if any(each.entry is not None for each in outputs):
        heads = [nd.array(numbers("head", *each.shape), dtype=each.dtype) for each in outputs]
        autograd.backward(list(outputs), heads)
    gradients = [each.grad for each in arrays]
    return [each.asnumpy() for each in (*outputs, *filter(_is_array, gradients), *arrays)]


def _is_array(value: Any) -> bool:
    return isinstance(value, mxrun.NDArray)


def main() -> None:
    """Compute every operator that is listed."""
    without = []
    for name in sorted({*sym.list_operators(), *CASES}):
        if not hasattr(nd, name):
            continue
        for index, (inputs, parameters) in enumerate(CASES.get(name, ())):
            note(f"{name} {index}", compute(name, inputs, parameters))
        if name in CASES:
            continue
        for inputs, parameters in UPDATES if name.endswith("_update") else USUAL:
            try:
                results = compute(name, inputs, parameters)
            except (mxrun.MxrunError, TypeError):
                continue
            note(name, results)
            break
        else:
            without.append(name)
    if without:
        raise SystemExit(f"no case of face_operators.py fits {', '.join(without)}")
    assert len(FACTS) > 100
    write()


if __name__ == "__main__":
    main()
