"""Panels, colours, ticks and legends that figures have in common."""

from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from jaxlossy.figures import NotebookFigure


def panels_of(
    title: str,
    columns: int,
    *,
    rows: int = 1,
    width: float = 3.5,
    height: float = 3.3,
    **shared: Any,
) -> tuple[Figure, Any]:
    """A figure of panels of that size in inches, and the panels row by row.

    Args:
      title: above all of them.
      columns, rows: how many.
      width, height: of a panel.
      shared: sharex and sharey, as in ``Figure.subplots``.
    """
    size = (width * columns + 2.2, height * rows + 0.7)
    figure = NotebookFigure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for axes in panels:
        axes.grid(alpha=0.25)
    figure.suptitle(title, fontsize=10)
    return figure, panels


def palette(cmap: str, count: int) -> Any:
    """So many colours of a colour map, without the palest, which do not show on white."""
    return matplotlib.colormaps[cmap](np.linspace(0, 0.85, count))


def plain_ticks(axis: Axis) -> None:
    """Numbers, not powers, on a logarithmic axis that spans little more than a decade."""
    axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def legend(
    figure: Figure, handles: Any, title: str = "", loc: Any = "outside right center"
) -> None:
    """A legend beside the panels."""
    style = {"frameon": False, "fontsize": 9, "title_fontsize": 9, "alignment": "left"}
    figure.legend(handles=handles, title=title, loc=loc, **style)
