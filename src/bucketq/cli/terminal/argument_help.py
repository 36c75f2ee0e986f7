"""How --help shows the arguments of a command: as manual pages do, ``URL JOB...`` or ``[KIND]``.

typer adds the Python type of each, and says "required" of the address too, which may be omitted if
BUCKETQ_URL is set.
"""

from __future__ import annotations

from functools import partial
from typing import Any


def with_plain_arguments(parameters: list[Any]) -> list[Any]:
    """Replace how the arguments among a command's parameters are shown."""
    for parameter in parameters:
        if parameter.param_type_name == "argument" and parameter.metavar:
            parameter.get_usage_pieces = partial(_usage, parameter)
            parameter.get_help_record = partial(_record, parameter)
    return parameters


def _usage(parameter: Any, _ctx: Any) -> list[str]:
    name = parameter.metavar.removesuffix("...")
    many = "" if parameter.nargs == 1 else "..."
    return [f"{name}{many}" if parameter.required else f"[{name}{many}]"]


def _record(parameter: Any, _ctx: Any) -> tuple[str, str]:
    return parameter.metavar, parameter.help or ""
