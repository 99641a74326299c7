"""Convolutions with kernels that differ from replica to replica, forward and backward.

Of an image with a margin of zeros, what a row of windows sees is a matrix already: its rows are one
pixel apart and overlap. So a convolution is a few products that read the image where it lies.
"""

from jaxlossy.jit import inlined
from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import FLOAT_BYTES
from jaxlossy.kernels.tiles import multiply, multiply_left_transposed


def convolve(frame):
    """Of x (..., batch, h, w, channels) and kernel (..., taps, 3, channels, features).

    Results: y (..., batch, h, w, features) and room for an image with its margin
    (..., h, w, channels). Attributes: spread, how far apart pixels of x are; stride, windows.
    """
    if xla.asks_metadata(frame):
        return 0
    x, kernel = xla.argument(frame, 0), xla.argument(frame, 1)
    y, room = xla.result(frame, 0), xla.result(frame, 1)
    spread, stride = xla.attribute(frame, 0), xla.attribute(frame, 1)
    images, taps, inner = xla.size(x, -4), xla.size(kernel, -4), 3 * xla.size(x, -1)
    height, width, features = xla.size(y, -3), xla.size(y, -2), xla.size(y, -1)
    pixel, y_pixel = FLOAT_BYTES * xla.size(x, -1), FLOAT_BYTES * features
    row, tap = xla.size(room, -2) * pixel, inner * y_pixel
    xla.clear(xla.data(room), xla.size(room, -3) * row)
    for image in range(xla.batch(y, 3)):
        replica, number = image // images, image % images
        weights = xla.item(kernel, 4, replica, y, 4)
        target = xla.item(y, 4, replica, y, 4) + number * height * width * y_pixel
        _copy_inside(x, xla.item(x, 4, replica, y, 4), number, taps, spread, room)
        for h in range(height):
            # Between the rows of a spread image there are zeros: taps on them do not count.
            first = ((taps - 1) // 2 - h * stride) % spread
            multiply(
                (xla.data(room) + (h * stride + first) * row, stride * pixel),
                (weights + first * tap, y_pixel),
                (target + h * width * y_pixel, y_pixel),
                (0, 0),
                (width, features, inner),
                ((taps - first + spread - 1) // spread, spread * row, spread * tap),
            )
    return 0


def convolve_gradient(frame):
    """The kernel's gradient, of x (..., batch, h, w, channels) and y (..., batch, h, w, features).

    Results: kernel (..., taps, 3, channels, features) and room as in ``convolve``.
    """
    if xla.asks_metadata(frame):
        return 0
    x, y = xla.argument(frame, 0), xla.argument(frame, 1)
    kernel, room, stride = xla.result(frame, 0), xla.result(frame, 1), xla.attribute(frame, 0)
    images, taps, inner = xla.size(x, -4), xla.size(kernel, -4), 3 * xla.size(x, -1)
    height, width, features = xla.size(y, -3), xla.size(y, -2), xla.size(y, -1)
    pixel, y_pixel = FLOAT_BYTES * xla.size(x, -1), FLOAT_BYTES * features
    row, tap = xla.size(room, -2) * pixel, inner * y_pixel
    xla.clear(xla.data(room), xla.size(room, -3) * row)
    xla.clear(xla.data(kernel), xla.batch(kernel, 4) * taps * tap)
    for image in range(xla.batch(kernel, 4) * images):
        replica, number = image // images, image % images
        gradient = xla.item(y, 4, replica, kernel, 4) + number * height * width * y_pixel
        _copy_inside(x, xla.item(x, 4, replica, kernel, 4), number, taps, 1, room)
        for t in range(taps):
            total = (xla.item(kernel, 4, replica, kernel, 4) + t * tap, y_pixel)
            multiply_left_transposed(
                (xla.data(room) + t * row, stride * pixel),
                (gradient, y_pixel),
                total,
                total,
                (inner, features, width),
                (height, stride * row, width * y_pixel),
            )
    return 0


@inlined
def _copy_inside(x, images, number, taps, spread, room):
    """Puts one of x's images inside of its margin, its pixels `spread` apart."""
    height, width, pixel = xla.size(x, -3), xla.size(x, -2), FLOAT_BYTES * xla.size(x, -1)
    row = xla.size(room, -2) * pixel
    for h in range(height):
        source = images + (number * height + h) * width * pixel
        target = xla.data(room) + ((taps - 1) // 2 + h * spread) * row + pixel
        if spread == 1:
            xla.copy(target, source, width * pixel)
        else:
            for w in range(width):
                xla.copy(target + w * spread * pixel, source + w * pixel, pixel)
