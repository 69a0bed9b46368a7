"""In which order of axes the values of a segment lie in memory."""
