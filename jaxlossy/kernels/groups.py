"""Normalisation by groups of channels (Wu & He, 1803.08494), forward and backward.

Image by image, as an image is still in the cache when its sums are known.
"""

import numpy as np

from jaxlossy.kernels import xla
from jaxlossy.kernels.columns import combine, sums
from jaxlossy.kernels.registers import FLOAT_BYTES
from jaxlossy.kernels.xla import get, put

EPSILON = np.float32(1e-6)


def normalize(frame):
    """Of x (..., batch, pixels, channels), scale and bias (..., channels).

    Results: y, as x; mean and inverse deviation (..., batch, groups); room (..., 3, channels).
    """
    if xla.asks_metadata(frame):
        return 0
    x, y = xla.argument(frame, 0), xla.result(frame, 0)
    images, pixels, channels = xla.size(y, -3), xla.size(y, -2), xla.size(y, -1)
    groups, row = xla.size(xla.result(frame, 1), -1), FLOAT_BYTES * channels
    width, count = channels // groups, np.float32(pixels * (channels // groups))
    first = xla.data(xla.result(frame, 3))
    second, third = first + row, first + 2 * row
    for image in range(xla.batch(y, 2)):
        replica, number = image // images, image % images
        source = xla.item(x, 3, replica, y, 3) + number * pixels * row
        target = xla.item(y, 3, replica, y, 3) + number * pixels * row
        scale = xla.item(xla.argument(frame, 1), 1, replica, y, 3)
        bias = xla.item(xla.argument(frame, 2), 1, replica, y, 3)
        means = xla.item(xla.result(frame, 1), 2, replica, y, 3)
        inverses = xla.item(xla.result(frame, 2), 2, replica, y, 3)
        sums(source, source, pixels, channels, first, second)
        for group in range(groups):
            channels_here = range(group * width, (group + 1) * width)
            total = square = np.float32(0)
            for c in channels_here:
                total += get(first, c)
                square += get(second, c)
            mean = total / count
            variance = max(square / count - mean * mean, np.float32(0))
            inverse = np.float32(1) / np.sqrt(variance + EPSILON)
            put(means, number * groups + group, mean)
            put(inverses, number * groups + group, inverse)
            for c in channels_here:
                slope = get(scale, c) * inverse
                put(first, c, slope)
                put(second, c, np.float32(0))
                put(third, c, get(bias, c) - mean * slope)
        combine(source, source, first, second, third, target, pixels, channels)
    return 0


def normalize_gradient(frame):
    """Of x, y's gradient, scale, mean and inverse deviation; shapes as in ``normalize``.

    Results: the gradients of x, scale and bias; room.
    """
    if xla.asks_metadata(frame):
        return 0
    x, y, result = xla.argument(frame, 0), xla.argument(frame, 1), xla.result(frame, 0)
    images, pixels, channels = xla.size(x, -3), xla.size(x, -2), xla.size(x, -1)
    groups, row = xla.size(xla.argument(frame, 3), -1), FLOAT_BYTES * channels
    width, count = channels // groups, np.float32(pixels * (channels // groups))
    first = xla.data(xla.result(frame, 3))
    second, third = first + row, first + 2 * row
    xla.clear(xla.data(xla.result(frame, 1)), xla.batch(result, 3) * row)
    xla.clear(xla.data(xla.result(frame, 2)), xla.batch(result, 3) * row)
    for image in range(xla.batch(result, 2)):
        replica, number = image // images, image % images
        here = number * pixels * row
        source = xla.item(x, 3, replica, result, 3) + here
        gradient = xla.item(y, 3, replica, result, 3) + here
        scale = xla.item(xla.argument(frame, 2), 1, replica, result, 3)
        means = xla.item(xla.argument(frame, 3), 2, replica, result, 3)
        inverses = xla.item(xla.argument(frame, 4), 2, replica, result, 3)
        of_scale = xla.item(xla.result(frame, 1), 1, replica, result, 3)
        of_bias = xla.item(xla.result(frame, 2), 1, replica, result, 3)
        sums(source, gradient, pixels, channels, first, second)
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
        combine(source, gradient, first, second, third, target, pixels, channels)
    return 0
