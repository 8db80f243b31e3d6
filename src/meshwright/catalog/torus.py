"""Shapes of TPU slices: which axes exist, which shape a number of chips gets, how a shape is written."""

from __future__ import annotations

import itertools
import math
import re
from functools import lru_cache

from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.spec.cluster import Torus

_SHAPE = re.compile(r"\s*\d{1,7}(\s*[x×]\s*\d{1,7})+\s*", re.IGNORECASE)


def parse_shape(text: str, *, where: str = "") -> tuple[int, ...]:
    """`8x8x16` as a tuple of positive whole numbers.

    >>> parse_shape("4x4x8")
    (4, 4, 8)
    """
    if not _SHAPE.fullmatch(text):
        raise InputError(
            Text(N_("'{text}' is not the shape of a slice"), text=text[:60]),
            where=where,
            fix=Text(N_("write it like {examples}"), examples="16x16, 8x8x16"),
        )
    shape = tuple(int(axis) for axis in re.split(r"[x×]", text, flags=re.IGNORECASE))
    if 0 in shape:
        raise InputError(
            Text(N_("an axis of a slice cannot be 0")),
            where=where,
            fix=Text(N_("write it like {examples}"), examples="16x16, 8x8x16"),
        )
    return shape


def write_shape(shape: tuple[int, ...]) -> str:
    """The shape as people write it.

    >>> write_shape((4, 4, 8))
    '4x4x8'
    """
    return "x".join(map(str, shape))


def is_shape(text: str) -> bool:
    """Whether `text` looks like the shape of a slice."""
    return bool(_SHAPE.fullmatch(text))


@lru_cache(maxsize=64)
def axes(torus: Torus) -> tuple[int, ...]:
    """Lengths an axis may have: powers of two in two dimensions; 1, 2 and multiples of 4 in three (cubes of 4x4x4)."""
    longest = max(torus.largest)
    if torus.dimensions == 2:
        return tuple(2**k for k in range(longest.bit_length()))
    return (1, 2, *range(4, longest + 1, 4))


def fits(shape: tuple[int, ...], torus: Torus) -> bool:
    """Whether a slice of `shape` exists in a pod, in some orientation."""
    legal = len(shape) == torus.dimensions and all(axis in axes(torus) for axis in shape)
    return legal and all(a <= b for a, b in zip(sorted(shape), sorted(torus.largest), strict=True))


@lru_cache(maxsize=64)
def best_shapes(torus: Torus) -> dict[int, tuple[int, ...]]:
    """For each number of chips that a slice can have, its best shape: most closed axes, then most like a cube."""
    found: dict[int, tuple[tuple[int, float], tuple[int, ...]]] = {}
    for shape in itertools.combinations_with_replacement(axes(torus), torus.dimensions):
        if not fits(shape, torus):
            continue
        chips = math.prod(shape)
        merit = (sum(torus.wraps(shape)), -max(shape) / min(shape))
        if chips not in found or merit > found[chips][0]:
            found[chips] = (merit, shape)
    return {chips: _ones_last(shape) for chips, (_, shape) in found.items()}


def _ones_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Google writes a flat slice 2x2x1."""
    return (*(a for a in shape if a > 1), *(a for a in shape if a == 1))


def shape_for(chips: int, torus: Torus, *, name: str, where: str = "") -> tuple[int, ...]:
    """The best shape of a slice of `chips`; raises with the nearest numbers that exist."""
    shapes = best_shapes(torus)
    if chips in shapes:
        return shapes[chips]
    pod = max(shapes)
    if chips > pod:
        whole = math.ceil(chips / pod)
        raise InputError(
            Text(N_("a slice of {chips} chips is larger than a {name} pod of {pod}"), chips=chips, name=name, pod=pod),
            where=where,
            fix=Text(
                N_("join slices over the data-centre network: {text}"),
                text=f"{whole}*{name}:{write_shape(shapes[pod])}",
            ),
        )
    near = [*sorted(n for n in shapes if n < chips)[-1:], *sorted(n for n in shapes if n > chips)[:1]]
    raise InputError(
        Text(N_("no {name} slice has {chips} chips"), name=name, chips=chips),
        where=where,
        fix=Text(N_("the nearest are {names}"), names=", ".join(f"{n} ({write_shape(shapes[n])})" for n in near)),
    )


def check_shape(shape: tuple[int, ...], torus: Torus, *, name: str, where: str = "") -> tuple[int, ...]:
    """`shape`, if such a slice exists; raises with the nearest one otherwise."""
    if len(shape) != torus.dimensions:
        chips = math.prod(shape)
        near = best_shapes(torus).get(chips)
        raise InputError(
            Text(
                N_("{name} is wired in {dimensions} dimensions, the shape {shape} has {given}"),
                name=name,
                dimensions=torus.dimensions,
                shape=write_shape(shape),
                given=len(shape),
            ),
            where=where,
            fix=Text(
                N_("write it like {examples}"),
                examples=f"{name}:{write_shape(near or best_shapes(torus)[max(best_shapes(torus))])}",
            ),
        )
    if fits(shape, torus):
        return shape
    if math.prod(shape) > max(best_shapes(torus)):
        return shape_for(math.prod(shape), torus, name=name, where=where)  # raises: larger than a pod
    raise InputError(
        Text(N_("{name} has no slice of shape {shape}"), name=name, shape=write_shape(shape)),
        where=where,
        fix=Text(
            N_("axes may be {names} long, within a pod of {pod}"),
            names=", ".join(map(str, axes(torus))),
            pod=write_shape(torus.largest),
        ),
    )
