"""The functions of :mod:`~..math` of vectors of f64."""
