"""Text <-> object: "MultiSimilarity(alpha=2, miner=HardPairs(eps=0.1))".

A spec is a Python expression of part names, literals and keyword arguments, parsed and never evaluated. It is the config
value, the flag, the grid axis and the table row. Facts only the run knows (`classes`, `dim`, ...) fill arguments of that name
that a spec left open; nothing is ever dropped silently.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from likewise.config import type_check
from likewise.config.imports import import_dotted
from likewise.errors import LikewiseError, nearest_name

Kind = typing.TypeVar("Kind")

FACTS = (
    "classes", "dim", "features", "labels", "largest_class", "class_names", "seed", "steps", "per_pass", "taxonomy", "rows",
    "samples", "embedder", "make_loss",
)  # fmt: skip
"""What only the run knows; it fills arguments of these names that a spec leaves open."""

ARRAYS = ("labels", "class_names", "taxonomy", "rows", "embedder", "make_loss")
"""Those that are no text: `spec` leaves them out, `build` wants them again."""

ELSEWHERE = {"num_classes": "classes", "embedding_size": "dim", "descriptors_dim": "dim"}
"""What others call these facts: filled in for imported parts that cannot do without."""

REGISTRIES = (
    "losses", "miners", "samplers", "noise", "confidence", "terms", "protocols", "models.heads", "loggers", "adapters",
)  # fmt: skip
"""Modules whose `__all__` lists parts by name."""


def build(text: str, want: type[Kind] | None = None, *, allow_imports: bool = False, **facts) -> Kind:
    """Make the part that a spec describes.

    Args:
        text: the spec.
        want: the contract it must fulfil.
        allow_imports: whether a dotted name (`my_lab.losses.Mine()`) may be imported. Importing runs that module's code.
        facts: values for arguments of these names that the spec leaves open, at any depth.
    """
    node = _parse(text)
    name = node.func if isinstance(node, ast.Call) else node
    known = _registry().get(name.id) if isinstance(name, ast.Name) else None
    if want is not None and known is not None and not issubclass(known, want):
        raise LikewiseError(f"spec '{text}' makes a {known.__name__}, but a {want.__name__} is wanted here")
    part: typing.Any = _adopted(_make(node, text, facts, allow_imports), want, node)
    if want is not None and not isinstance(part, want):
        raise LikewiseError(f"spec '{text}' makes a {type(part).__name__}, but a {want.__name__} is wanted here")
    return part


class Described(typing.NamedTuple):
    """A component that a spec names: its class and its arguments by name, defaults included. Nothing is built."""

    kind: type
    arguments: dict[str, typing.Any]


def describe(text: str, want: type, *, allow_imports: bool = False) -> Described:
    """Return the class and the arguments that a spec names; facts of a run are not needed. See `build` for the arguments."""
    found = _described(_parse(text), text, want, allow_imports)
    if not issubclass(found.kind, want):
        raise LikewiseError(f"spec '{text}' makes a {found.kind.__name__}, but a {want.__name__} is wanted here")
    return found


def _described(node: ast.expr, text: str, want: typing.Any, allow_imports: bool) -> Described:
    from likewise.adapters.pml import FromPML, is_pml_class

    call, kind = _call(node, text, allow_imports)
    hints = _hints(kind)
    arguments = {name: p.default for name, p in _parameters(kind).items() if p.default is not p.empty}
    for name, value in ((str(word.arg), word.value) for word in call.keywords):
        if isinstance(value, ast.Call):
            arguments[name] = _described(value, text, hints.get(name), allow_imports)
        else:
            arguments[name] = _value(value, text, {}, allow_imports)
    found = Described(kind, arguments)
    wanted = tuple(one for one in (typing.get_args(want) or (want,)) if inspect.isclass(one))
    if wanted and not issubclass(kind, wanted) and is_pml_class(kind):
        return Described(FromPML, {"loss": found, "miner": None})
    return found


def spec(part) -> str:
    """The text that builds this part again: the arguments that differ from their defaults, in order."""
    if hasattr(type(part), "written"):  # of another library: it keeps the text it was built from
        return part.written
    arguments = []
    for name, parameter in _parameters(type(part)).items():
        if name in ARRAYS:
            continue
        value = getattr(part, name)
        if parameter.default is inspect.Parameter.empty or not _same(value, parameter.default):
            arguments.append(f"{name}={_text(value)}")
    return f"{name_of(type(part))}({', '.join(arguments)})"


def usage(part: type) -> str:
    """How a part is written with all its arguments at their defaults."""
    shown = [n if p.default is p.empty else f"{n}={_text(p.default)}" for n, p in _parameters(part).items()]
    return f"{part.__name__}({', '.join(shown)})"


def canonical(text: str) -> str:
    """The same spec in one spelling, every argument written out: what a run stores does not change with a default.

    Builds nothing. What the run fills in stays open, and parts that would have to be imported are left as they are.
    """
    return ast.unparse(_tidy(_parse(text)))


def brief(text: str) -> str:
    """The same spec without what it says by default: for people to read."""
    return ast.unparse(_short(_parse(text)))


def _short(node: ast.expr) -> ast.expr:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in _registry():
        return node
    parameters = _parameters(_registry()[node.func.id])
    usual = {n: ast.unparse(_tidy(_parse(_text(p.default)))) for n, p in parameters.items() if p.default is not p.empty}
    kept = [word for word in node.keywords if ast.unparse(_tidy(word.value)) != usual.get(str(word.arg))]
    return ast.Call(node.func, node.args, [ast.keyword(word.arg, _short(word.value)) for word in kept])


def files(text: str) -> list[str]:
    """The existing files that a spec names, and folders given as paths: a plain word is none, though a folder be called so."""
    words = {n.value for n in ast.walk(_parse(text)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    places = {word: Path(word).expanduser() for word in words}
    return sorted(word for word, place in places.items() if place.is_file() or ("/" in word and place.is_dir()))


def _tidy(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        return node
    if (part := _registry().get(node.func.id)) is None:
        return node
    parameters = _parameters(part)
    given: dict[typing.Any, ast.expr] = {word.arg: word.value for word in node.keywords}
    kept = []
    for name in [*parameters, *(n for n in given if n not in parameters)]:
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if name not in given and (name in FACTS or default is inspect.Parameter.empty):
            continue
        value = _tidy(given[name] if name in given else _parse(_text(default)))
        if isinstance(default, float) and isinstance(value, ast.Constant) and type(value.value) is int:
            value = ast.Constant(float(value.value))
        kept.append(ast.keyword(name, value))
    return ast.Call(node.func, [], kept)


def find(registry: str) -> dict[str, type]:
    """Return the components of a registry by class name."""
    module = importlib.import_module(f"likewise.{registry}")
    return {name: getattr(module, name) for name in module.__all__}


@cache
def _registry() -> dict[str, type]:
    """Return all components that a spec may name, by class name."""
    components: dict[str, type] = {}
    for registry in REGISTRIES:
        for name, component in find(registry).items():
            if components.setdefault(name, component) is not component:
                raise AssertionError(f"two components are called {name}; rename one of them")
    return components


def _parse(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        ast.unparse(tree)  # needs more levels than anything that follows
    except (RecursionError, MemoryError, ValueError):
        raise LikewiseError(f"spec '{text[:40]}...' is too deep or odd to be read") from None
    except SyntaxError as error:
        raise LikewiseError(
            f"spec '{text[:200]}' cannot be read ({error.msg} at character {error.offset}); "
            'write it like "MultiSimilarity(alpha=2, miner=HardPairs(eps=0.1))"'
        ) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > 2**53:
            raise LikewiseError(f"spec '{text[:40]}...': whole numbers go from -2**53 to 2**53, got a larger one")
        if not isinstance(node, ast.Call):
            continue
        words = [word.arg for word in node.keywords]
        if twice := [word for word in words if words.count(word) > 1]:
            raise LikewiseError(f"spec '{text}': {ast.unparse(node.func)} has {twice[0]} twice; leave one out")
    return tree


def _make(node: ast.expr, text: str, facts: dict, allow_imports: bool):
    node, part = _call(node, text, allow_imports)
    if node.args:
        raise LikewiseError(
            f"spec '{text}': arguments go by name, got '{ast.unparse(node.args[0])}' without one; "
            f"{part.__name__} takes: {', '.join(_parameters(part)) or 'none'}"
        )
    own = _parameters(part)
    parameters = own | {name: p for name, p in _passed_on(part).items() if name not in own}
    hints = _hints(part)
    given = {k.arg: _value(k.value, text, facts, allow_imports) for k in node.keywords}
    given = {k.arg: _adopted(given[k.arg], hints.get(k.arg), k.value) for k in node.keywords}
    _must_take(part, given, parameters)
    for name, value in given.items():
        if name in hints and not type_check.fits(value, hints[name]):
            shown = type(value).__name__ if _is_part(value) else repr(value)
            raise LikewiseError(f"{part.__name__}: {name} must be {type_check.words(hints[name])}, got {shown}")
    filled = {name: facts[name] for name in parameters if name not in given and name in facts}
    needed = [n for n, p in parameters.items() if p.default is p.empty and n not in given and n not in filled]
    filled |= {n: facts[ELSEWHERE[n]] for n in needed if ELSEWHERE.get(n) in facts}
    missing = [n for n in needed if n not in filled and n in own]
    if missing:
        raise LikewiseError(f"{part.__name__} needs {', '.join(missing)}; write {part.__name__}({missing[0]}=...)")
    try:
        made: typing.Any = part(**given, **filled)  # pyright: ignore[reportCallIssue]
    except (TypeError, KeyError, AssertionError, ValueError) as error:
        if part.__module__.startswith("likewise."):
            raise
        raise LikewiseError(
            f"spec '{text}': {part.__name__} cannot be made so ({error}); see its documentation"
        ) from None
    if hasattr(part, "written"):
        made.source = ast.unparse(node)
    return made


def _call(node: ast.expr, text: str, allow_imports: bool) -> tuple[ast.Call, type]:
    """A component in a spec, as a call, and the class that it names."""
    if isinstance(node, ast.Name | ast.Attribute):
        node = ast.Call(node, [], [])
    if not isinstance(node, ast.Call):
        raise LikewiseError(f"spec '{text}': a part is a name with arguments, got '{ast.unparse(node)}'")
    part = _resolve(node.func, text, allow_imports)
    if not inspect.isclass(part):
        raise LikewiseError(f"spec '{text}': '{ast.unparse(node.func)}' is not a part that can be built")
    return node, part


def _must_take(part: type, given: Iterable[str | None], parameters: dict) -> None:
    for name in given:
        if name not in parameters:
            raise LikewiseError(
                f"{part.__name__} has no argument '{name}'{nearest_name(str(name), parameters)} "
                f"It takes: {', '.join(parameters) or 'none'}"
            )


def check_names(text: str) -> None:
    """A slip in a part's or an argument's name is told, without building anything; what is imported is left for later."""
    for node in ast.walk(_parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            part = _resolve(node.func, text, False)
            _must_take(part, [k.arg for k in node.keywords], _parameters(part) | _passed_on(part))


def _adopted(value, want, node: ast.expr):
    """A loss of another library as one of ours, where one of ours is wanted."""
    if want is None or type_check.fits(value, want):
        return value
    from likewise.adapters.pml import FromPML, is_pml

    if not is_pml(value):
        return value
    made = FromPML(value)
    made.source = ast.unparse(node)
    return made


def _value(node: ast.expr, text: str, facts: dict, allow_imports: bool):
    if isinstance(node, ast.Call):
        return _make(node, text, facts, allow_imports)
    if isinstance(node, ast.Name | ast.Attribute):
        raise LikewiseError(
            f"spec '{text}': '{ast.unparse(node)}' is neither a literal nor a part; "
            f"write a part with brackets, {ast.unparse(node)}(), and text in quotes"
        )
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(n, text, facts, allow_imports) for n in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # of another kind; a key that cannot be one
        raise LikewiseError(
            f"spec '{text}': '{ast.unparse(node)}' is not a literal; specs hold names and literals only"
        ) from None


def _resolve(node: ast.expr, text: str, allow_imports: bool):
    name = ast.unparse(node)
    if isinstance(node, ast.Name):
        registry = _registry()
        if name not in registry:
            raise LikewiseError(
                f"spec '{text}': there is no part called '{name}'{nearest_name(name, registry)} "
                "`likewise list` shows all of them"
            )
        return registry[name]
    if not isinstance(node, ast.Attribute):
        raise LikewiseError(f"spec '{text}': '{name}' is not a name")
    return import_dotted(name, f"spec '{text}'", allow_imports)


def _parameters(part: type) -> dict[str, inspect.Parameter]:
    """Named arguments; a module without a constructor of its own inherits *args and **kwargs, which are none."""
    found = inspect.signature(part).parameters
    return {n: p for n, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _passed_on(part: type) -> dict[str, inspect.Parameter]:
    """What a part with **kwargs takes besides: arguments of the classes that it comes from."""
    if all(p.kind is not p.VAR_KEYWORD for p in inspect.signature(part).parameters.values()):
        return {}
    found: dict[str, inspect.Parameter] = {}
    for base in part.__mro__[1:]:
        for name, p in inspect.signature(base.__init__).parameters.items() if "__init__" in vars(base) else ():
            if name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                found.setdefault(name, p)
    return found


def _hints(part: type) -> dict:
    try:
        return typing.get_type_hints(part.__init__)
    except (NameError, TypeError):  # somebody's own part, annotated with names that only its author can resolve
        return {}


def name_of(part: type) -> str:
    return part.__name__ if _registry().get(part.__name__) is part else f"{part.__module__}.{part.__qualname__}"


def _is_part(value) -> bool:
    return inspect.isclass(type(value)) and type(value).__module__ not in ("builtins",)


def _same(a, b) -> bool:
    if _is_part(a) or _is_part(b):
        return type(a) is type(b) and _text(a) == _text(b)
    return (type(a) is type(b) and a == b) or (isinstance(a, int | float) and isinstance(b, int | float) and a == b)


def _text(value) -> str:
    if isinstance(value, list | tuple):
        inside = ", ".join(_text(v) for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return spec(value) if _is_part(value) else ast.unparse(ast.Constant(value))  # which writes infinity as 1e309
