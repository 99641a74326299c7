"""Convolutions with kernels that differ from replica to replica, forward and backward.

Of an image with a margin of zeros, what a row of windows sees is a matrix already: its rows are one
pixel apart and overlap. So a convolution is a few products that read the image where it lies.
"""

from jaxlossy.jit import inlined
from jaxlossy.kernels import xla
from jaxlossy.kernels.registers import FLOAT_BYTES
from jaxlossy.kernels.tiles import multiply, multiply_transposed


@inlined
def _add_margin(image, height, width, pixel, spread, margin, padded, padded_row):
    """Copies an image to where it has zeros around it, its pixels `spread` apart."""
    for h in range(height):
        target = padded + (margin + h * spread) * padded_row + pixel
        source = image + h * width * pixel
        if spread == 1:
            xla.copy(target, source, width * pixel)
        else:
            for w in range(width):
                xla.copy(target + w * spread * pixel, source + w * pixel, pixel)


def convolve(frame):
    """Of x (..., batch, h, w, channels), kernel (..., taps, 3, channels, features).

    Results: y (..., batch, h, w, features) and room for a padded image (..., h, w, channels).
    Attributes: spread, how far apart pixels of x are; stride, of windows.
    """
    if xla.asks_metadata(frame):
        return 0
    x, kernel = xla.argument(frame, 0), xla.argument(frame, 1)
    y, room = xla.result(frame, 0), xla.result(frame, 1)
    spread, stride = xla.attribute(frame, 0), xla.attribute(frame, 1)
    images, height, width = xla.size(x, -4), xla.size(x, -3), xla.size(x, -2)
    taps, channels, features = xla.size(kernel, -4), xla.size(x, -1), xla.size(y, -1)
    y_height, y_width = xla.size(y, -3), xla.size(y, -2)
    pixel, y_pixel = FLOAT_BYTES * channels, FLOAT_BYTES * features
    row, padded = xla.size(room, -2) * pixel, xla.data(room)
    margin, tap = (taps - 1) // 2, 3 * channels * y_pixel
    xla.clear(padded, xla.size(room, -3) * row)
    for replica in range(xla.batch(x, 4)):
        weights = xla.data(kernel) + replica * taps * tap
        for image in range(replica * images, (replica + 1) * images):
            _add_margin(
                xla.data(x) + image * height * width * pixel,
                height,
                width,
                pixel,
                spread,
                margin,
                padded,
                row,
            )
            for h in range(y_height):
                # Rows between those of a spread image are zero: only taps on others count.
                first = (margin - h * stride) % spread
                multiply(
                    padded + (h * stride + first) * row,
                    stride * pixel,
                    weights + first * tap,
                    y_pixel,
                    xla.data(y) + (image * y_height + h) * y_width * y_pixel,
                    y_pixel,
                    0,
                    0,
                    y_width,
                    features,
                    3 * channels,
                    (taps - first + spread - 1) // spread,
                    spread * row,
                    spread * tap,
                )
    return 0


def convolve_gradient(frame):
    """The gradient with respect to the kernel.

    Of x (..., batch, h, w, channels) and y (..., batch, h, w, features).
    Results: kernel (..., taps, 3, channels, features) and room as in ``convolve``.
    """
    if xla.asks_metadata(frame):
        return 0
    x, y = xla.argument(frame, 0), xla.argument(frame, 1)
    kernel, room = xla.result(frame, 0), xla.result(frame, 1)
    stride = xla.attribute(frame, 0)
    images, height, width = xla.size(x, -4), xla.size(x, -3), xla.size(x, -2)
    taps, channels, features = xla.size(kernel, -4), xla.size(x, -1), xla.size(y, -1)
    y_height, y_width = xla.size(y, -3), xla.size(y, -2)
    pixel, y_pixel = FLOAT_BYTES * channels, FLOAT_BYTES * features
    row, padded = xla.size(room, -2) * pixel, xla.data(room)
    margin, tap = (taps - 1) // 2, 3 * channels * y_pixel
    xla.clear(padded, xla.size(room, -3) * row)
    for replica in range(xla.batch(x, 4)):
        xla.clear(xla.data(kernel) + replica * taps * tap, taps * tap)
        for image in range(replica * images, (replica + 1) * images):
            _add_margin(
                xla.data(x) + image * height * width * pixel,
                height,
                width,
                pixel,
                1,
                margin,
                padded,
                row,
            )
            for t in range(taps):
                here = xla.data(kernel) + (replica * taps + t) * tap
                multiply_transposed(
                    padded + t * row,
                    stride * pixel,
                    xla.data(y) + image * y_height * y_width * y_pixel,
                    y_pixel,
                    here,
                    y_pixel,
                    here,
                    y_pixel,
                    3 * channels,
                    features,
                    y_width,
                    y_height,
                    stride * row,
                    y_width * y_pixel,
                )
    return 0
