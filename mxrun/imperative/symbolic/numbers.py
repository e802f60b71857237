"""MXNet's functions of two operands, each a symbol or a number."""

from __future__ import annotations

import builtins
import math

from mxrun.imperative.symbolic.symbol import binary_function

maximum = binary_function("maximum", "_maximum", "_MaximumScalar", "_MaximumScalar", max)
minimum = binary_function("minimum", "_minimum", "_MinimumScalar", "_MinimumScalar", min)
hypot = binary_function("hypot", "_hypot", "_HypotScalar", "_HypotScalar", math.hypot)
pow = binary_function("pow", "_Power", "_PowerScalar", "_RPowerScalar", builtins.pow)
power = pow
