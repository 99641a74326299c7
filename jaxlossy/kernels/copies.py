"""Memory copied: rows of a table, and what rows consist of."""

from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import FLOAT_BYTES


def take_rows(frame):
    """Of a table (..., rows, length), the rows with these indices (..., count)."""
    if xla.asks_metadata(frame):
        return 0
    table, indices, result = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    rows, count, row = xla.size(table, -2), xla.size(result, -2), FLOAT_BYTES * xla.size(table, -1)
    for i in range(xla.batch(result, 2)):
        source, target = xla.item(table, 2, i, result, 2), xla.item(result, 2, i, result, 2)
        index = xla.item(indices, 1, i, result, 2)
        for k in range(count):
            # Never beyond the table, whatever the index.
            wanted = min(max(xla.get_integer(index, k), 0), rows - 1)
            xla.copy(target + k * row, source + wanted * row, row)
    return 0


def split_rows(frame):
    """Of a table (..., rows, length), the parts of its rows, from row `start` (...) on.

    A part (..., count, columns) begins where the one before it ends.
    """
    if xla.asks_metadata(frame):
        return 0
    table, start, first = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    rows, count, row = xla.size(table, -2), xla.size(first, -2), FLOAT_BYTES * xla.size(table, -1)
    for i in range(xla.batch(first, 2)):
        # Never beyond the table.
        wanted = min(max(xla.get_integer(xla.item(start, 0, i, first, 2), 0), 0), rows - count)
        source = xla.item(table, 2, i, first, 2) + wanted * row
        for number in range(xla.num_results(frame)):
            part = xla.result(frame, number)
            target, length = xla.item(part, 2, i, first, 2), FLOAT_BYTES * xla.size(part, -1)
            for k in range(count):
                xla.copy(target + k * length, source + k * row, length)
            source += length
    return 0
