"""Converts the words of a command line to the types of its parameters.

typer does that with pydantic, which takes longer to import than most commands take to run. A
parameter of another type than those here, or of a typer that converts values in another way, is
still converted by typer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer


def without_pydantic(parameters: list[Any]) -> list[Any]:
    """Replace how the values of a command's parameters are converted, if their type is simple."""
    for parameter in parameters:
        descriptor: Any = getattr(parameter, "type_descriptor", None)
        kind = getattr(descriptor, "annotation", None)
        is_flag = kind is bool and getattr(parameter, "is_flag", False)
        if is_flag or kind in (str, int, Path, list[str]):
            limits = descriptor.parameter_info
            parameter.get_runtime_param = partial(_SimpleValues, kind, limits.min, limits.max)
    return parameters


class _SimpleValues:
    """Converts values to a flag, a text, an integer, a path, or a list of texts."""

    def __init__(self, kind: Any, lowest: float | None, highest: float | None) -> None:
        self._kind = kind
        self._lowest = lowest
        self._highest = highest

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert what was given, or the default."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._kind == list[str]:
            return [str(item) for item in value]
        if self._kind is not int:
            return self._kind(value)
        try:
            number = int(value)
        except ValueError:
            message = f"{value!r} is not an integer."
            raise typer.BadParameter(message, ctx=ctx, param=param) from None
        if self._lowest is not None and number < self._lowest:
            message = f"{number} is less than {self._lowest}."
            raise typer.BadParameter(message, ctx=ctx, param=param)
        if self._highest is not None and number > self._highest:
            message = f"{number} is more than {self._highest}."
            raise typer.BadParameter(message, ctx=ctx, param=param)
        return number
