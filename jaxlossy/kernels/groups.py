"""Normalisation by groups of channels (Wu & He, 1803.08494), forward and backward.

Image by image, as an image is still in the cache when its sums are known.
"""

import numpy as np

from jaxlossy.jit import inlined
from jaxlossy.kernels import xla
from jaxlossy.kernels.columns import affine, combine, sums
from jaxlossy.kernels.registers import FLOAT_BYTES
from jaxlossy.kernels.xla import get, put

EPSILON = np.float32(1e-6)


def normalize(frame):
    """Of x (..., batch, pixels, channels), scale and bias (..., channels).

    Results: y, as x; mean and inverse deviation (..., batch, groups); room (..., 2, channels).
    Attribute: relu, whether what is negative becomes 0.
    """
    if xla.asks_metadata(frame):
        return 0
    x, y, relu = xla.argument(frame, 0), xla.result(frame, 0), xla.attribute(frame, 0)
    images, pixels, channels = xla.size(y, -3), xla.size(y, -2), xla.size(y, -1)
    groups, row = xla.size(xla.result(frame, 1), -1), FLOAT_BYTES * channels
    width, count = channels // groups, np.float32(pixels * (channels // groups))
    first = xla.data(xla.result(frame, 3))
    second = first + row
    for image in range(xla.batch(y, 2)):
        replica, number = image // images, image % images
        source = xla.item(x, 3, replica, y, 3) + number * pixels * row
        target = xla.item(y, 3, replica, y, 3) + number * pixels * row
        scale = xla.item(xla.argument(frame, 1), 1, replica, y, 3)
        bias = xla.item(xla.argument(frame, 2), 1, replica, y, 3)
        means = xla.item(xla.result(frame, 1), 2, replica, y, 3)
        inverses = xla.item(xla.result(frame, 2), 2, replica, y, 3)
        sums(source, source, scale, bias, 0, pixels, channels, first, second)
        for group in range(groups):
            total = square = np.float32(0)
            for c in range(group * width, (group + 1) * width):
                total += get(first, c)
                square += get(second, c)
            mean = total / count
            variance = max(square / count - mean * mean, np.float32(0))
            put(means, number * groups + group, mean)
            put(inverses, number * groups + group, np.float32(1) / np.sqrt(variance + EPSILON))
        _write_factors(scale, bias, means, inverses, number, groups, channels, first, second)
        affine(source, first, second, relu, target, pixels, channels)
    return 0


def normalize_gradient(frame):
    """Of x, y's gradient, scale, bias, mean and inverse deviation; shapes as in ``normalize``.

    Results: the gradients of x, scale and bias; room (..., 5, channels). Attribute: relu.
    """
    if xla.asks_metadata(frame):
        return 0
    x, y, result = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    images, pixels, channels = xla.size(x, -3), xla.size(x, -2), xla.size(x, -1)
    groups, row = xla.size(xla.argument(frame, 4), -1), FLOAT_BYTES * channels
    width, count = channels // groups, np.float32(pixels * (channels // groups))
    first, relu = xla.data(xla.result(frame, 3)), xla.attribute(frame, 0)
    second, third, slopes, starts = first + row, first + 2 * row, first + 3 * row, first + 4 * row
    xla.clear(xla.data(xla.result(frame, 1)), xla.batch(result, 3) * row)
    xla.clear(xla.data(xla.result(frame, 2)), xla.batch(result, 3) * row)
    for image in range(xla.batch(result, 2)):
        replica, number = image // images, image % images
        here = number * pixels * row
        source = xla.item(x, 3, replica, result, 3) + here
        gradient = xla.item(y, 3, replica, result, 3) + here
        scale = xla.item(xla.argument(frame, 2), 1, replica, result, 3)
        bias = xla.item(xla.argument(frame, 3), 1, replica, result, 3)
        means = xla.item(xla.argument(frame, 4), 2, replica, result, 3)
        inverses = xla.item(xla.argument(frame, 5), 2, replica, result, 3)
        of_scale = xla.item(xla.result(frame, 1), 1, replica, result, 3)
        of_bias = xla.item(xla.result(frame, 2), 1, replica, result, 3)
        _write_factors(scale, bias, means, inverses, number, groups, channels, slopes, starts)
        sums(source, gradient, slopes, starts, relu, pixels, channels, first, second)
        for group in range(groups):
            channels_here = range(group * width, (group + 1) * width)
            mean = get(means, number * groups + group)
            inverse = get(inverses, number * groups + group)
            total = product = np.float32(0)
            for c in channels_here:
                of_normal = inverse * (get(second, c) - mean * get(first, c))
                put(of_scale, c, get(of_scale, c) + of_normal)
                put(of_bias, c, get(of_bias, c) + get(first, c))
                total += get(scale, c) * get(first, c)
                product += get(scale, c) * of_normal
            slope = -inverse * inverse * product / count
            for c in channels_here:
                put(first, c, slope)
                put(second, c, inverse * get(scale, c))
                put(third, c, -inverse * total / count - slope * mean)
        target = xla.item(result, 3, replica, result, 3) + here
        combine(
            source, gradient, slopes, starts, relu, first, second, third, target, pixels, channels
        )
    return 0


@inlined
def _write_factors(scale, bias, means, inverses, number, groups, channels, slopes, starts):
    """What an image's channels are multiplied by, and what is added to them then."""
    width = channels // groups
    for group in range(groups):
        mean = get(means, number * groups + group)
        inverse = get(inverses, number * groups + group)
        for c in range(group * width, (group + 1) * width):
            slope = get(scale, c) * inverse
            put(slopes, c, slope)
            put(starts, c, get(bias, c) - mean * slope)
