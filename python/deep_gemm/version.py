"""Of the interface (that of DeepGEMM 2.6.1), then of the library that is inside."""

__version__ = '2.6.1+c.0.1.0'
