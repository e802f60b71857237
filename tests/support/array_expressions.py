"""Expressions on arrays that mxrun.nd, MXNet 1.9.1 and, in part, NumPy evaluate alike.

`X`, `Y`, `Z` are float32 arrays, `B` has one row, `I`, `J` are int32 and `D` is float64; `nd` is
the library's module.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


def operands() -> dict[str, Array]:
    """Return the arrays of the expressions."""
    random = np.random.default_rng(1)
    return {
        "X": random.uniform(0.25, 3, (3, 4)).astype("float32"),
        "Y": random.uniform(-2, 2, (3, 4)).astype("float32"),
        "Z": random.uniform(-1, 1, (2, 3, 4)).astype("float32"),
        "B": random.uniform(0.5, 2, (1, 4)).astype("float32"),
        "V": random.uniform(0.5, 2, (4,)).astype("float32"),
        "I": random.integers(1, 9, (3, 4)).astype("int32"),
        "J": random.integers(1, 4, (3, 4)).astype("int32"),
        "D": random.uniform(0.25, 3, (3, 4)),
    }


# Arithmetic that NumPy computes alike on float32.
ARITHMETIC = (
    *("X + Y", "X - Y", "X * Y", "X / Y", "X % Y", "X ** Y", "X + B", "X - V", "X * V", "V / X"),
    *("X + 2", "2 + X", "X - 0.5", "0.5 - X", "X * 3", "3 * X", "X / 4", "1 / X", "X % 0.7"),
    *("5 % X", "X ** 2", "X ** 0.5", "2 ** X", "-X", "abs(Y)", "X + True", "D + D", "D * 2.5"),
    *("Z + X", "Z * B", "(X + Y) * (X - Y) / V", "X - X", "Y / 0.25", "Y * -0.0"),
)
# Whole numbers: NumPy divides and raises them otherwise.
INTEGERS = (
    *("I + J", "I - J", "I * J", "I + 1", "I - 1.7", "I * 2.7", "I / 2", "I / J", "2 / J"),
    *("I % J", "I % 3", "7 % J", "I ** 2", "-I", "abs(-I)", "I > J", "I >= 3", "I == J"),
)
COMPARISONS = (
    *("X == X", "X == Y", "X != Y", "X > Y", "X >= Y", "X < Y", "X <= Y", "X > 1", "1 > X"),
    *("X >= 1", "1 <= X", "X < V", "B != X", "X == 1", "1 != X"),
)
INDICES = (
    *("X[0]", "X[-1]", "X[1, 2]", "X[0:2]", "X[1:]", "X[:, 1]", "X[:, 1:3]", "X[::2]", "X[::-1]"),
    *("X[..., 0]", "X[None]", "X[:, None]", "X[1][2:4]", "X[0, 1:3]", "Z[1, :, 2]", "Z[1]"),
    *("Z[:, 1]", "Z[..., 1:3]", "Z[0, 1, 2]", "Z[1, 0:2]", "Z[0:1, 1]", "X[[2, 0]]"),
    *("X[nd.array([1, 0, 2])]", "X[2:0:-1]", "X[:, ::2]", "X[...]", "X[:]"),
)
SHAPES = (
    *("X.reshape((4, 3))", "X.reshape(2, 6)", "X.reshape((-1, 2))", "X.reshape((0, -1))"),
    *("Z.reshape((-3, 0))", "Z.reshape((0, -4, -1, 1, 0))", "X.reshape(-1)", "X.T", "Z.T"),
    *("Z.transpose((1, 0, 2))", "Z.transpose()", "X.expand_dims(1)", "X.flatten()"),
    *("Z.flatten()", "B.squeeze(0)", "Z.swapaxes(0, 2)", "X.reshape_like(X.T)", "X.copy()"),
    *("X.astype('float16')", "X.astype('int32')", "X.astype('float64')", "I.astype('float32')"),
    *("X.slice((0, 1), (2, 3))", "X.slice_axis(axis=1, begin=1, end=3)"),
)
METHODS = (
    *("X.sum()", "X.sum(axis=0)", "X.sum(1)", "Z.sum(axis=(0, 2))", "X.sum(axis=1, keepdims=True)"),
    *("X.mean()", "X.mean(axis=0)", "X.max()", "X.max(axis=1)", "X.min(axis=0)", "X.prod(axis=1)"),
    *("X.argmax(axis=1)", "X.argmin(axis=0)", "X.norm()", "X.norm(ord=1, axis=1)", "X.nansum()"),
    *("X.exp()", "X.log()", "X.sqrt()", "X.square()", "Y.abs()", "Y.sign()", "Y.relu()"),
    *("Y.sigmoid()", "Y.tanh()", "Y.sin()", "Y.cos()", "Y.arctan()", "Y.floor()", "Y.ceil()"),
    *("Y.round()", "Y.rint()", "Y.fix()", "Y.trunc()", "X.rsqrt()", "X.cbrt()", "X.reciprocal()"),
    *("X.log1p()", "X.expm1()", "X.log2()", "X.log10()", "X.degrees()", "X.radians()"),
    *("Y.clip(-1, 1)", "Y.softmax()", "Y.log_softmax(axis=0)", "X.ones_like()", "X.zeros_like()"),
    *("X.split(2, axis=1)[1]", "X.sinh()", "X.cosh()", "Y.arcsinh()", "I.sum(axis=0)"),
)
FUNCTIONS = (
    *("nd.dot(X, Y, transpose_b=True)", "nd.dot(X, V)", "nd.batch_dot(Z, Z, transpose_b=True)"),
    *("nd.concat(X, Y, dim=0)", "nd.Concat(X, Y)", "nd.stack(X, Y)"),
    *("nd.stack(X, Y, axis=1)", "nd.add_n(X, Y, X)", "nd.maximum(X, Y)", "nd.maximum(X, 1)"),
    *("nd.minimum(1, X)", "nd.add(X, 1)", "nd.subtract(1, X)", "nd.multiply(X, V)"),
    *("nd.divide(1, X)", "nd.power(2, X)", "nd.modulo(X, Y)", "nd.equal(X, X)"),
    *("nd.greater(X, 1)", "nd.lesser_equal(1, X)", "nd.logical_and(X, Y)", "nd.clip(X, 0.5, 1)"),
    *("nd.transpose(Z, (2, 0, 1))", "nd.expand_dims(X, 0)", "nd.sum(X, 1)", "nd.Cast(X, 'int32')"),
    *("nd.FullyConnected(X, Y, None, no_bias=True, num_hidden=3)", "nd.softmax(X, axis=0)"),
    *("nd.FullyConnected(X, nd.ones((2, 4)), nd.ones((2,)), num_hidden=2)", "nd.smooth_l1(Y)"),
    *("nd.FullyConnected(data=X, weight=Y, bias=nd.ones((3,)), num_hidden=3)",),
    *("nd.Activation(Y, act_type='softrelu')", "nd.LeakyReLU(Y, act_type='elu', slope=0.5)"),
    *(
        "nd.where(Y > 0, X, Y)",
        "nd.moments(X, axes=(0,))[1]",
        "nd.SliceChannel(X, num_outputs=4)[2]",
    ),
    *("nd.Embedding(nd.array([1, 0, 2]), X, input_dim=3, output_dim=4)", "nd.cumsum(X, 1)"),
    *("nd.SoftmaxOutput(X, nd.array([1, 0, 3]))", "nd.Flatten(Z)", "nd.negative(X)"),
    *("nd.broadcast_add(X, B)", "nd.elemwise_mul(X, Y)", "nd.argmax(X, axis=1)"),
    *("nd.Dropout(X, p=0.5)", "nd.LRN(Z.reshape((1, 2, 3, 4)), nsize=3)", "nd.norm(X)"),
    *("nd.BatchNorm(X, V, V, V, V, fix_gamma=False)", "nd.SwapAxis(X, 0, 1)"),
    *("nd.concatenate([X, Y], axis=1)", "nd.full((2, 2), 7)", "nd.arange(1, 7, 2)"),
    *("nd.Pooling(Z.reshape((1, 2, 3, 4)), kernel=(2, 2), pool_type='avg')",),
    *("nd.arange(5)", "nd.arange(1, 3, 0.5, repeat=2)", "nd.eye(2, 3, 1)", "nd.eye(3)"),
    *("nd.linspace(0, 1, 5)", "nd.zeros((2, 1))", "nd.ones(3)", "nd.ones_like(I)"),
    *("nd.array([1, 2], dtype='int32')", "nd.array(5)", "nd.array([[1, 2], [3, 4]])"),
    *("nd.array(I)", "nd.zeros((2,), dtype='uint8') - 3", "nd.zeros_like(D)"),
)
COMPOSITES = (
    *(
        "nd.stack(X, Y, axis=-1)",
        "X.slice((0, 1), (2, 3))",
        "X.slice(begin=(2,), end=(0,), step=(-1,))",
    ),
    *(
        "nd.slice(Z, (0, None), (1, 2))",
        "Z.slice_axis(axis=-1, begin=1, end=None)",
        "X.flip(axis=1)",
    ),
    *(
        "nd.flip(X, axis=0)",
        "B.broadcast_to((3, 4))",
        "nd.broadcast_to(B, (3, 0))",
        "V.broadcast_like(V)",
    ),
    *("B.broadcast_like(X)", "X.repeat(2)", "X.repeat(repeats=3, axis=1)", "Z.repeat(2, axis=0)"),
    *(
        "X.tile((2, 1))",
        "V.tile(3)",
        "V.tile((2, 3))",
        "Z.tile((2,))",
        "nd.tile(B, reps=(2, 1, 2))",
    ),
    *(
        "J.one_hot(4)",
        "nd.one_hot(V, 3, on_value=5, off_value=-1)",
        "nd.one_hot(J, 2, dtype='int32')",
    ),
    *("X.pick(nd.array([0, 3, 9]))", "X.pick(nd.array([0, 2, 1, 1]), axis=0)"),
    *("X.pick(nd.array([1, 0, 2]), axis=1, keepdims=True)", "nd.pick(X / 0, nd.array([0, 1, 2]))"),
    *("X.take(nd.array([2, 0]))", "X.take(nd.array([[1, 7], [0, -3]]))", "Z.take(J, axis=1)"),
    *(
        "nd.take(Z, nd.array([3, 0]), axis=2)",
        "D.take(nd.array([1]))",
        "nd.take(V, nd.array([1, 1]))",
    ),
)
GROUPS = {
    "composites": COMPOSITES,
    "arithmetic": ARITHMETIC,
    "integers": INTEGERS,
    "comparisons": COMPARISONS,
    "indices": INDICES,
    "shapes": SHAPES,
    "methods": METHODS,
    "functions": FUNCTIONS,
}
