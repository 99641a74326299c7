"""Products of small matrices that differ from replica to replica, for dense layers."""

import numpy as np

from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import FLOAT_BYTES
from jaxlossy.kernels.tiles import (
    multiply,
    multiply_left_transposed,
    multiply_right_transposed,
)

_ONE = np.ones(1, np.float32)


def dense(frame):
    """``y = x w + b`` of x (..., rows, inner), w (..., inner, columns) and b (..., columns)."""
    if xla.asks_metadata(frame):
        return 0
    x, weights, bias = (xla.argument(frame, 0), xla.argument(frame, 1), xla.argument(frame, 2))
    y = xla.result(frame, 0)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    row = FLOAT_BYTES * columns
    for i in range(xla.batch(y, 2)):
        multiply(
            (xla.item(x, 2, i, y, 2), FLOAT_BYTES * inner),
            (xla.item(weights, 2, i, y, 2), row),
            (xla.item(y, 2, i, y, 2), row),
            (xla.item(bias, 1, i, y, 2), 0),
            (rows, columns, inner),
            (1, 0, 0),
        )
    return 0


def dense_input_gradient(frame):
    """``x = y w'`` of y (..., rows, columns) and w (..., inner, columns)."""
    if xla.asks_metadata(frame):
        return 0
    y, weights, x = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    row, x_row = FLOAT_BYTES * columns, FLOAT_BYTES * inner
    for i in range(xla.batch(x, 2)):
        multiply_right_transposed(
            (xla.item(y, 2, i, x, 2), row),
            (xla.item(weights, 2, i, x, 2), row),
            (xla.item(x, 2, i, x, 2), x_row),
            (0, 0),
            (rows, inner, columns),
            (1, 0, 0),
        )
    return 0


def dense_gradient(frame):
    """``w = x' y`` and ``b = sum of y``, of x (..., rows, inner) and y (..., rows, columns)."""
    if xla.asks_metadata(frame):
        return 0
    x, y = xla.argument(frame, 0), xla.argument(frame, 1)
    weights, bias = xla.result(frame, 0), xla.result(frame, 1)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    row = FLOAT_BYTES * columns
    for i in range(xla.batch(weights, 2)):
        gradient = (xla.item(y, 2, i, weights, 2), row)
        multiply_left_transposed(
            (xla.item(x, 2, i, weights, 2), FLOAT_BYTES * inner),
            gradient,
            (xla.item(weights, 2, i, weights, 2), row),
            (0, 0),
            (inner, columns, rows),
            (1, 0, 0),
        )
        # The sum of rows is a product with ones: the same one over and over.
        multiply_left_transposed(
            (_ONE.ctypes.data, 0),
            gradient,
            (xla.item(bias, 1, i, weights, 2), row),
            (0, 0),
            (1, columns, rows),
            (1, 0, 0),
        )
    return 0
