"""Every registered formula, unchanged, on quantities with units and on columns: dimensions and broadcasting."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from typing import Any

import numpy as np
import pint
import pytest

import meshwright.formulas
from meshwright.engine import update  # noqa: F401  (registers optimizer.update)
from meshwright.formulas.numeric import Unit
from meshwright.formulas.registry import REGISTRY, Formula

for module in pkgutil.iter_modules(meshwright.formulas.__path__):
    importlib.import_module(f"meshwright.formulas.{module.name}")

# Empty, since in pint's own registry a byte is a plain number and would pass for a count.
UNITS = pint.UnitRegistry(None)
for name in ("byte", "second", "flop", "token", "dollar"):
    UNITS.define(f"{name} = [{name}]")

ALL = sorted(REGISTRY)
# These count operations: a number of multiplications and additions is where FLOP begins.
COUNTING = {id for id in ALL if id.startswith("flops.")} | {"roofline.matmul.flops"}
# A point inside every formula's domain: p > stage, chunk < chunks, window below the sequence, a real pipe.
LOWEST = {
    ("comm.card_rate", "ranks"): 2,  # its bus bandwidth is that of a collective, which needs two ranks
    ("noise.signal", "large"): 65,  # two batch sizes, the larger above all of the smaller
    ("noise.trace", "large"): 65,
}
POINT = {"p": 8, "stage": 2, "chunks": 3, "chunk": 1, "stages": 8, "ranks": 8, "passes": 24, "wrapped": True}


def units_of(formula: Formula) -> dict[str, str | None]:
    """Unit of every parameter and of the result; None where the annotation has none (switches, optional windows)."""
    hints = typing.get_type_hints(formula.function, include_extras=True)
    return {
        name: next((str(m) for m in getattr(hint, "__metadata__", ()) if isinstance(m, Unit)), None)
        for name, hint in hints.items()
    }


def quantities(formula: Formula) -> dict[str, Any]:
    """An argument per parameter with a unit; the others keep their default."""
    units = units_of(formula)
    out: dict[str, Any] = {}
    for n, (name, parameter) in enumerate(inspect.signature(formula.function).parameters.items()):
        unit = units.get(name)
        if unit is None:
            assert parameter.default is not inspect.Parameter.empty or parameter.annotation in ("bool", "Any"), name
            if parameter.annotation == "bool" or parameter.default is not None:
                out[name] = 1  # a switch that is on: optional parts must fit too
        else:
            out[name] = UNITS.Quantity(float(POINT.get(name, 2 + n)), unit)
    return out


@pytest.mark.parametrize("id", ALL)
def test_the_result_has_the_annotated_dimension(id: str) -> None:
    formula = REGISTRY[id]
    unit = units_of(formula)["return"]
    assert unit is not None, "the result has no unit"
    result = UNITS.Quantity(1.0, "") * formula.function(**quantities(formula))
    expected = "" if id in COUNTING and id != "flops.training" else unit
    assert result.dimensionality == UNITS.Quantity(1.0, expected).dimensionality


@pytest.mark.parametrize("id", ALL)
def test_every_parameter_has_a_unit_or_is_a_switch(id: str) -> None:
    formula = REGISTRY[id]
    units = units_of(formula)
    for name, parameter in inspect.signature(formula.function).parameters.items():
        switch = parameter.annotation == "bool" or parameter.default is None or isinstance(parameter.default, bool)
        assert units.get(name) is not None or switch or parameter.annotation == "Any", name


def test_bytes_are_not_a_number_here() -> None:
    """Without a dimension of their own, bytes per count would pass for anything."""
    assert UNITS.Quantity(1, "byte").dimensionality != UNITS.Quantity(1, "").dimensionality
    with pytest.raises(pint.DimensionalityError):
        REGISTRY["comm.point_to_point"].function(
            UNITS.Quantity(1, "byte"), UNITS.Quantity(1, "second"), UNITS.Quantity(1, "flop / second")
        )


@pytest.mark.parametrize("id", ALL)
def test_a_column_gives_what_its_rows_give(id: str) -> None:
    """Whole numbers, degrees of one included; every switch both ways."""
    formula = REGISTRY[id]
    rng = np.random.default_rng(7)
    units = units_of(formula)
    rows = 64
    parameters = inspect.signature(formula.function).parameters
    switches = [n for n, p in parameters.items() if p.annotation == "bool" or isinstance(p.default, bool)]
    for setting in (False, True):
        columns: dict[str, Any] = {}
        for name in parameters:
            if name in switches or units.get(name) is None:
                continue
            lowest = LOWEST.get((id, name), 1)
            columns[name] = rng.integers(lowest, lowest + 64, rows).astype(float)
        fixed = dict.fromkeys(switches, setting)
        required = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty]
        fixed |= {name: setting for name in required if name not in columns and name not in fixed}
        whole = np.broadcast_to(np.asarray(formula.function(**columns, **fixed), dtype=float), (rows,))
        single = [formula.function(**{n: float(c[i]) for n, c in columns.items()}, **fixed) for i in range(rows)]
        assert all(isinstance(v, (int, float)) for v in single), "a scalar came back as an array"
        np.testing.assert_allclose(whole, single, rtol=1e-12)
