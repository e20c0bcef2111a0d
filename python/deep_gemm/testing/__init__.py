"""Measuring and comparing, for tests and benchmarks. torch is imported when it is needed."""

from . import bench, numeric, utils
from .bench import *
from .numeric import *
from .utils import *
