"""The figure of merit of a benchmark: a metric, or an expression over metrics and arguments."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Set

from milabench.config.expr import check_expression, evaluate
from milabench.config.problems import UnplacedProblem
from milabench.errors import ConfigError, Problem
from milabench.procurement.uncertainty import UncertainValue, propagate


def figure_of_merit(
    expression: str,
    metrics: Mapping[str, UncertainValue],
    arguments: Mapping[str, float] | None = None,
    *,
    units: str = "",
    where: str = "",
    path: str = "",
) -> UncertainValue:
    """Return the value of an expression such as `rate * sequence_length` with the uncertainty of the metrics in it.

    A name that is both a metric and an argument, or that the language lacks, is `metrics["..."]` or `arguments["..."]`.
    A metric alone has its own units if none are given. Raises ConfigError, with the place, for a figure not above zero.
    """
    arguments = arguments or {}

    def value(numbers: Mapping[str, float]) -> float:
        names = {**arguments, **numbers, "metrics": numbers, "arguments": arguments}
        result = evaluate(expression, names)
        if isinstance(result, bool) or not isinstance(result, int | float) or not 0 < result < math.inf:
            what = f"in the expression {expression!r}: a figure of merit is a number above zero, got {result!r}"
            raise UnplacedProblem(what)
        return float(result)

    try:
        check_expression(expression)
        _check_names(expression, metrics.keys() & arguments.keys())
        return propagate(value, metrics, units or (metrics[expression].units if expression in metrics else ""))
    except UnplacedProblem as error:
        raise ConfigError(Problem(where, path, str(error), error.hint)) from None


def _check_names(expression: str, twice: Set[str]) -> None:
    """Raise UnplacedProblem for a name that is there `twice`, as a metric and as an argument."""
    names = {node.id for node in ast.walk(ast.parse(expression.strip(), mode="eval")) if isinstance(node, ast.Name)}
    if both := names & twice:
        name = min(both)
        what = f"in the expression {expression!r}: {name!r} is both a metric and an argument"
        raise UnplacedProblem(what, f'write metrics["{name}"] or arguments["{name}"]')
