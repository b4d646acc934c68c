"""Operators of the dispatcher, by the full schema as the build argument, or by name alone."""

from __future__ import annotations

from typing import Any

from benchmate.ops.errors import OperatorFailed, OpsError
from benchmate.ops.interface import Passes
from benchmate.ops.operators import CallableOp
from benchmate.ops.registry import spelling_hint
from benchmate.ops.types import Arguments, FunctionSchema, Keywords, OpOverload


def parse_schema(text: str) -> FunctionSchema:
    """Return the schema that a text is. Raises OperatorFailed for another text."""
    import torch

    try:
        return torch._C.parse_schema(text)
    except RuntimeError as error:
        raise OperatorFailed(f"not a schema: {text!r}: {str(error).strip().splitlines()[0]}") from None


class AtenOp(CallableOp):
    """`namespace::name` or `namespace::name.overload`; a build argument holds the schema of the overload.

    Without either, the overload is the first whose schema takes the arguments. Keyword-only arguments may be given by name or,
    as the original wants them, in the place where the schema has them; what is left out has its default.
    """

    def __init__(self, name: str) -> None:
        import torch

        self.name, _, overload = name.partition(".")
        self._schema: FunctionSchema | None = None
        namespace, _, short = self.name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), short, None) if short else None
        if packet is None:
            hint = spelling_hint(short, dir(getattr(torch.ops, namespace)))
            raise OpsError(f"unknown operator '{name}': torch {torch.__version__} has none of that name{hint}")
        if overload and overload not in packet.overloads():
            raise OpsError(f"unknown overload '{name}'; there are {', '.join(packet.overloads())}")
        super().__init__(packet)
        self._packet, self._overload = packet, overload

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Take the schema, where one is given. Raises OperatorFailed for one that torch does not have."""
        if not args:
            return
        parsed = parse_schema(args[0] if isinstance(args[0], str) else "")
        if parsed.name != self.name:
            raise OperatorFailed(f"the schema is that of {parsed.name}, not of {self.name}")
        self._schema = parsed

    def unbuild(self) -> None:
        self._schema = None

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        overload = self._find_overload(args, kwargs)
        positional, named = _split_by_schema(overload._schema, args, kwargs)
        self.function = overload
        return super().passes(positional, named)

    def _find_overload(self, args: Arguments, kwargs: Keywords) -> OpOverload:
        wanted = self._schema.overload_name or "default" if self._schema is not None else self._overload
        if wanted:
            if wanted not in self._packet.overloads():
                raise OperatorFailed(
                    f"{self.name} has no overload {wanted!r}; there are {', '.join(self._packet.overloads())}"
                )
            return getattr(self._packet, wanted)
        reasons = []
        # In torch's own order: the first that takes the arguments is meant, as in a call from Python.
        for name in self._packet.overloads():
            overload = getattr(self._packet, name)
            reason = _mismatch(overload._schema, args, kwargs)
            if reason is None:
                return overload
            reasons.append(f"{name}: {reason}")
        raise OperatorFailed(f"no overload of {self.name} takes these arguments ({'; '.join(reasons)})")


def _split_by_schema(schema: FunctionSchema, args: Arguments, kwargs: Keywords) -> tuple[list[object], Keywords]:
    """Return the arguments split where the schema's keyword-only ones begin."""
    declared = schema.arguments
    if len(args) > len(declared):
        raise OperatorFailed(f"{schema.name} takes {len(declared)} arguments, got {len(args)}")
    positional: list[object] = []
    named = dict(kwargs)
    for argument, value in zip(declared, args, strict=False):
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def _mismatch(schema: FunctionSchema, args: Arguments, kwargs: Keywords) -> str | None:
    """Return why a schema does not take these arguments, or None."""
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    if len(args) > len(schema.arguments):
        return "too many arguments"
    unknown = set(kwargs) - {argument.name for argument in schema.arguments}
    if unknown:
        return f"no argument {', '.join(sorted(unknown))}"
    for argument in schema.arguments:
        if argument.name not in given:
            if not argument.has_default_value():
                return f"needs {argument.name}"
        elif not _takes(str(argument.type), given[argument.name]):
            return f"{argument.name} is {argument.type}"
    return None


def _takes(kind: str, value: object) -> bool:
    """Whether a value may stand for a schema's type; strict between numbers and tensors, lenient where it hardly matters."""
    import torch

    if kind.startswith("Optional["):
        return value is None or _takes(kind[9:-1], value)
    if kind.startswith("List["):
        return isinstance(value, (list, tuple)) and all(_takes(kind[5:-1], item) for item in value)
    if kind == "Tensor":
        return isinstance(value, torch.Tensor)
    if kind in ("int", "SymInt"):
        # Element types are integers in a schema; true is not, though Python thinks so.
        return isinstance(value, (int, torch.dtype)) and not isinstance(value, bool)
    if kind in ("float", "number", "Scalar"):
        return isinstance(value, (int, float))
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    return not isinstance(value, torch.Tensor)
