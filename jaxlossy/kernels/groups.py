"""Normalisation by groups of channels (Wu & He, 1803.08494), forward and backward.

Image by image, as an image is still in the cache when its sums are known.
"""

import numpy as np

from jaxlossy.kernels import xla
from jaxlossy.kernels.columns import combine, sums
from jaxlossy.kernels.registers import FLOAT_BYTES

EPSILON = np.float32(1e-6)


def normalize(frame):
    """Of x (..., batch, pixels, channels), scale and bias (..., channels).

    Results: y, as x; mean and inverse deviation (..., batch, groups); room (..., 3, channels).
    """
    if xla.asks_metadata(frame):
        return 0
    x, y, room = xla.argument(frame, 0), xla.result(frame, 0), xla.result(frame, 3)
    images, pixels, channels = xla.size(x, -3), xla.size(x, -2), xla.size(x, -1)
    groups, replicas = xla.size(xla.result(frame, 1), -1), xla.batch(x, 3)
    scales = xla.floats(xla.argument(frame, 1), replicas * channels)
    biases = xla.floats(xla.argument(frame, 2), replicas * channels)
    means = xla.floats(xla.result(frame, 1), replicas * images * groups)
    inverses = xla.floats(xla.result(frame, 2), replicas * images * groups)
    first, row, width = xla.data(room), FLOAT_BYTES * channels, channels // groups
    work, count = xla.floats(room, 3 * channels), np.float32(pixels * width)
    for image in range(replicas * images):
        here, scale = image * pixels * row, image // images * channels
        source = xla.data(x) + here
        sums(source, source, pixels, channels, first, first + row)
        for group in range(groups):
            total = square = np.float32(0)
            for c in range(group * width, (group + 1) * width):
                total += work[c]
                square += work[channels + c]
            mean = total / count
            variance = max(square / count - mean * mean, np.float32(0))
            inverse = np.float32(1) / np.sqrt(variance + EPSILON)
            means[image * groups + group] = mean
            inverses[image * groups + group] = inverse
            for c in range(group * width, (group + 1) * width):
                work[c] = scales[scale + c] * inverse
                work[channels + c] = 0
                work[2 * channels + c] = biases[scale + c] - mean * work[c]
        combine(
            source,
            source,
            first,
            first + row,
            first + 2 * row,
            xla.data(y) + here,
            pixels,
            channels,
        )
    return 0


def normalize_gradient(frame):
    """Of x, y's gradient, scale, mean and inverse deviation; shapes as in ``normalize``.

    Results: the gradients of x, scale and bias; room.
    """
    if xla.asks_metadata(frame):
        return 0
    x, y, z, room = (
        xla.argument(frame, 0),
        xla.argument(frame, 1),
        xla.result(frame, 0),
        xla.result(frame, 3),
    )
    images, pixels, channels = xla.size(x, -3), xla.size(x, -2), xla.size(x, -1)
    groups, replicas = xla.size(xla.argument(frame, 3), -1), xla.batch(x, 3)
    scales = xla.floats(xla.argument(frame, 2), replicas * channels)
    means = xla.floats(xla.argument(frame, 3), replicas * images * groups)
    inverses = xla.floats(xla.argument(frame, 4), replicas * images * groups)
    of_scale = xla.floats(xla.result(frame, 1), replicas * channels)
    of_bias = xla.floats(xla.result(frame, 2), replicas * channels)
    first, row, width = xla.data(room), FLOAT_BYTES * channels, channels // groups
    work, count = xla.floats(room, 3 * channels), np.float32(pixels * width)
    of_scale[:] = 0
    of_bias[:] = 0
    for image in range(replicas * images):
        here, scale = image * pixels * row, image // images * channels
        source, gradient = xla.data(x) + here, xla.data(y) + here
        sums(source, gradient, pixels, channels, first, first + row)
        for group in range(groups):
            mean, inverse = means[image * groups + group], inverses[image * groups + group]
            total = product = np.float32(0)
            for c in range(group * width, (group + 1) * width):
                of_normal = inverse * (work[channels + c] - mean * work[c])
                of_scale[scale + c] += of_normal
                of_bias[scale + c] += work[c]
                total += scales[scale + c] * work[c]
                product += scales[scale + c] * of_normal
            slope = -inverse * inverse * product / count
            for c in range(group * width, (group + 1) * width):
                work[c] = slope
                work[channels + c] = inverse * scales[scale + c]
                work[2 * channels + c] = -inverse * total / count - slope * mean
        combine(
            source,
            gradient,
            first,
            first + row,
            first + 2 * row,
            xla.data(z) + here,
            pixels,
            channels,
        )
    return 0
