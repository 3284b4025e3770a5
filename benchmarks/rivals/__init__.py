"""Every way to one value and one gradient of the same NumPy function, one idea to a file.

Each file has a function ``ways()``: names, and for each a call that computes value and gradient once and returns the
gradient. All of them use the plain functions of ``functions.py``.
"""
