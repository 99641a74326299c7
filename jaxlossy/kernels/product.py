"""Products of small matrices that differ from replica to replica, forward and backward."""

import numpy as np

from jaxlossy.jit import inlined
from jaxlossy.kernels import tile, xla

_LOWEST = np.float32(-np.inf)
_ONE = np.ones(1, np.float32)


def dense(frame):
    """``y = x w + b`` of x (..., rows, inner), w (..., inner, columns) and b (..., columns)."""
    if xla.asks_metadata(frame):
        return 0
    x, weights, bias = xla.argument(frame, 0), xla.argument(frame, 1), xla.argument(frame, 2)
    y = xla.result(frame, 0)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    x_row, y_row = tile.FLOAT_BYTES * inner, tile.FLOAT_BYTES * columns
    for i in range(xla.batch(x, 2)):
        tile.multiply(
            xla.data(x) + i * rows * x_row,
            x_row,
            xla.data(weights) + i * inner * y_row,
            y_row,
            xla.data(y) + i * rows * y_row,
            y_row,
            xla.data(bias) + i * y_row,
            0,
            rows,
            columns,
            inner,
            1,
            0,
            0,
            _LOWEST,
        )
    return 0


def product(frame):
    """``y = x w`` of x (..., rows, inner) and w (..., inner, columns)."""
    if xla.asks_metadata(frame):
        return 0
    x, weights, y = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    x_row, y_row = tile.FLOAT_BYTES * inner, tile.FLOAT_BYTES * columns
    for i in range(xla.batch(x, 2)):
        tile.multiply(
            xla.data(x) + i * rows * x_row,
            x_row,
            xla.data(weights) + i * inner * y_row,
            y_row,
            xla.data(y) + i * rows * y_row,
            y_row,
            0,
            0,
            rows,
            columns,
            inner,
            1,
            0,
            0,
            _LOWEST,
        )
    return 0


def dense_weights(frame):
    """``w = x' y`` and ``b = sum of y``, of x (..., rows, inner) and y (..., rows, columns)."""
    if xla.asks_metadata(frame):
        return 0
    x, y = xla.argument(frame, 0), xla.argument(frame, 1)
    weights, bias = xla.result(frame, 0), xla.result(frame, 1)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    x_row, y_row = tile.FLOAT_BYTES * inner, tile.FLOAT_BYTES * columns
    for i in range(xla.batch(x, 2)):
        y_here = xla.data(y) + i * rows * y_row
        tile.multiply_transposed(
            xla.data(x) + i * rows * x_row,
            x_row,
            y_here,
            y_row,
            xla.data(weights) + i * inner * y_row,
            y_row,
            0,
            0,
            inner,
            columns,
            rows,
            1,
            0,
            0,
            _LOWEST,
        )
        tile.multiply_transposed(
            _ONE.ctypes.data,
            0,
            y_here,
            y_row,
            xla.data(bias) + i * y_row,
            y_row,
            0,
            0,
            1,
            columns,
            rows,
            1,
            0,
            0,
            _LOWEST,
        )
    return 0
