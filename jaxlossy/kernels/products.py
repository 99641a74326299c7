"""Products of small matrices that differ from replica to replica, for dense layers."""

import numpy as np

from jaxlossy.jit import inlined
from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import FLOAT_BYTES
from jaxlossy.kernels.tiles import multiply, multiply_transposed

_ONE = np.ones(1, np.float32)


def product(frame):
    """``y = x w`` of x (..., rows, inner) and w (..., inner, columns)."""
    if not xla.asks_metadata(frame):
        _products(xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0), 0, 0)
    return 0


def dense(frame):
    """``y = x w + b`` of x (..., rows, inner), w (..., inner, columns) and b (..., columns)."""
    if not xla.asks_metadata(frame):
        bias, y = xla.argument(frame, 2), xla.result(frame, 0)
        row = FLOAT_BYTES * xla.size(bias, -1)
        _products(xla.argument(frame, 0), xla.argument(frame, 1), y, xla.data(bias), row)
    return 0


@inlined
def _products(x, weights, y, start, start_row):
    """All of a batch; where one starts is `start_row` bytes from where the one before does."""
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    x_row, y_row = FLOAT_BYTES * inner, FLOAT_BYTES * columns
    for i in range(xla.batch(x, 2)):
        multiply(
            (xla.data(x) + i * rows * x_row, x_row),
            (xla.data(weights) + i * inner * y_row, y_row),
            (xla.data(y) + i * rows * y_row, y_row),
            (start + i * start_row, 0),
            (rows, columns, inner),
            (1, 0, 0),
        )


def dense_gradient(frame):
    """``w = x' y`` and ``b = sum of y``, of x (..., rows, inner) and y (..., rows, columns)."""
    if xla.asks_metadata(frame):
        return 0
    x, y = xla.argument(frame, 0), xla.argument(frame, 1)
    weights, bias = xla.result(frame, 0), xla.result(frame, 1)
    rows, inner, columns = xla.size(x, -2), xla.size(x, -1), xla.size(y, -1)
    x_row, y_row = FLOAT_BYTES * inner, FLOAT_BYTES * columns
    for i in range(xla.batch(x, 2)):
        gradient = (xla.data(y) + i * rows * y_row, y_row)
        multiply_transposed(
            (xla.data(x) + i * rows * x_row, x_row),
            gradient,
            (xla.data(weights) + i * inner * y_row, y_row),
            (0, 0),
            (inner, columns, rows),
            (1, 0, 0),
        )
        # The sum of rows is a product with ones: the same one over and over.
        multiply_transposed(
            (_ONE.ctypes.data, 0),
            gradient,
            (xla.data(bias) + i * y_row, y_row),
            (0, 0),
            (1, columns, rows),
            (1, 0, 0),
        )
    return 0
