"""Runs whose caller has bound outputs to arrays of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def run_apart(
    run: Callable[[Sequence[Any | None]], Sequence[Any]],
    inputs: Sequence[Any],
    bound: Sequence[Any | None],
    in_place: Mapping[int, int],
) -> Sequence[Any]:
    """What *run* gives for bound outputs; those that are inputs, too, are filled when
    it has ended, unless they may be written in place.

    Args:
        in_place: positions of outputs that may, each with that of the input.
    """
    given = [place for place, array in enumerate(bound) if array is not None]
    if not given:
        return run(bound)
    places = {id(array): place for place, array in enumerate(inputs)}
    later = [
        place
        for place in given
        if id(bound[place]) in places
        and in_place.get(place) != places[id(bound[place])]
    ]
    if not later:
        return run(bound)
    apart = list(bound)
    for place in later:
        apart[place] = None
    results = list(run(apart))
    for place in later:
        array = bound[place]
        assert array is not None
        if array.shape != results[place].shape or array.dtype != results[place].dtype:
            continue  # which the host says
        array[...] = results[place]
        results[place] = array
    return results
