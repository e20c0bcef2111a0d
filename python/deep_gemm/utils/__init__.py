"""Casts, scale layouts, and helpers for several processes."""

from . import dist, layout, math
from .dist import init_dist, uneven_all_gather
from .layout import *
from .math import *
