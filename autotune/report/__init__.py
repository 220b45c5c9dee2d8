"""The report that people look at: one HTML page of a benchmark's data."""

from typing import TYPE_CHECKING

from ...ir.lazy import loader

if TYPE_CHECKING:
    from .page import read_page as read_page
    from .page import render as render

__getattr__ = loader(__name__, {"read_page": ".page:read_page", "render": ".page:render"})
