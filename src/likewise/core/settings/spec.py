"""Text <-> object: "MultiSimilarity(alpha=2, miner=HardPairs(eps=0.1))".

A spec is a Python expression of component names, literals and keyword arguments; it is parsed and never evaluated. Flags,
config values, grid axes and table rows hold specs. Facts that only the run knows (`classes`, `dim`, ...) fill the arguments of
the same name that a spec leaves out. An unknown argument is an error. A dotted name is imported only where the user allows it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from likewise.core import argument_checks
from likewise.core.errors import LikewiseError, nearest_name

Kind = typing.TypeVar("Kind")

FACT_NAMES = (
    "classes", "dim", "features", "labels", "largest_class", "class_names", "seed", "steps", "per_pass", "taxonomy", "rows",
    "samples", "embedder", "make_loss", "label_sets", "sample_names", "other_names", "relevance", "votes",
)  # fmt: skip
"""Facts that only the run knows; they fill the arguments of the same name that a spec leaves out."""

ARRAY_FACTS = (
    "labels", "class_names", "taxonomy", "rows", "embedder", "make_loss", "label_sets", "sample_names", "other_names",
    "relevance", "votes",
)  # fmt: skip
"""Facts that cannot be written as text: `spec` leaves them out, and `build` needs them again."""

FOREIGN_FACT_NAMES = {"num_classes": "classes", "embedding_size": "dim", "descriptors_dim": "dim"}
"""Argument of other libraries -> the fact that fills it, for imported components that require it."""

REGISTRIES = (
    "losses", "miners", "samplers", "relevance", "noise", "confidence", "terms", "protocols", "models.heads", "loggers",
    "adapters",
)  # fmt: skip
"""Modules whose `__all__` lists components by name."""


def build(text: str, want: type[Kind] | None = None, *, allow_imports: bool = False, **facts) -> Kind:
    """Build the component that a spec describes.

    Args:
        text: the spec.
        want: the base class that the component must have.
        allow_imports: whether a dotted name (`my_lab.losses.Mine()`) may be imported. Importing runs that module's code.
        facts: values for arguments of these names that the spec leaves out, at any depth.
    """
    node = _parse(text)
    name = node.func if isinstance(node, ast.Call) else node
    known = _registry().get(name.id) if isinstance(name, ast.Name) else None
    if want is not None and known is not None and not issubclass(known, want):
        raise LikewiseError(f"spec '{text}' describes a {known.__name__}, but a {want.__name__} is needed here")
    component: typing.Any = _adopted(_make(node, text, facts, allow_imports), want, node)
    if want is not None and not isinstance(component, want):
        raise LikewiseError(
            f"spec '{text}' describes a {type(component).__name__}, but a {want.__name__} is needed here"
        )
    return component


class Described(typing.NamedTuple):
    """The class and the arguments of a component that a spec names, defaults included."""

    kind: type
    arguments: dict[str, typing.Any]


def describe(text: str, want: type, *, allow_imports: bool = False) -> Described:
    """Return the class and the arguments that a spec names, without building the component or facts of a run. Takes the arguments
    of `build`."""
    found = _described(_parse(text), text, want, allow_imports)
    if not issubclass(found.kind, want):
        raise LikewiseError(f"spec '{text}' describes a {found.kind.__name__}, but a {want.__name__} is needed here")
    return found


def _described(node: ast.expr, text: str, want: typing.Any, allow_imports: bool) -> Described:
    from likewise.core.adapters.pml import FromPML, is_pml_class

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


def spec(component) -> str:
    """Return the spec that builds a component again: the arguments that differ from their defaults, in order."""
    if hasattr(type(component), "written"):  # a component of another library stores the spec it was built from
        return component.written
    arguments = []
    for name, parameter in _parameters(type(component)).items():
        if name in ARRAY_FACTS:
            continue
        value = getattr(component, name)
        if parameter.default is inspect.Parameter.empty or not _same(value, parameter.default):
            arguments.append(f"{name}={_text(value)}")
    return f"{name_of(type(component))}({', '.join(arguments)})"


def usage(component: type) -> str:
    """Return the spec of a component class with all arguments at their defaults."""
    shown = [n if p.default is p.empty else f"{n}={_text(p.default)}" for n, p in _parameters(component).items()]
    return f"{component.__name__}({', '.join(shown)})"


def canonical(text: str) -> str:
    """Return the same spec in one spelling, with every argument written out, so that a run does not depend on later defaults.

    Builds nothing. Arguments that the run fills in stay out, and components with a dotted name are returned unchanged.
    """
    return ast.unparse(_tidy(_parse(text)))


def brief(text: str) -> str:
    """Return the same spec without arguments at their defaults, for display."""
    return ast.unparse(_short(_parse(text)))


def _short(node: ast.expr) -> ast.expr:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in _registry():
        return node
    parameters = _parameters(_registry()[node.func.id])
    usual = {n: ast.unparse(_tidy(_parse(_text(p.default)))) for n, p in parameters.items() if p.default is not p.empty}
    kept = [word for word in node.keywords if ast.unparse(_tidy(word.value)) != usual.get(str(word.arg))]
    return ast.Call(node.func, node.args, [ast.keyword(word.arg, _short(word.value)) for word in kept])


def files(text: str) -> list[str]:
    """Return the existing files in a spec, and the folders written with a slash; a plain word is not read as a folder."""
    words = {n.value for n in ast.walk(_parse(text)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    places = {word: Path(word).expanduser() for word in words}
    return sorted(word for word, place in places.items() if place.is_file() or ("/" in word and place.is_dir()))


def _tidy(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        return node
    if (component := _registry().get(node.func.id)) is None:
        return node
    parameters = _parameters(component)
    given: dict[typing.Any, ast.expr] = {word.arg: word.value for word in node.keywords}
    kept = []
    for name in [*parameters, *(n for n in given if n not in parameters)]:
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if name not in given and (name in FACT_NAMES or default is inspect.Parameter.empty):
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
        ast.unparse(tree)  # recurses deeper than all later steps
    except (RecursionError, MemoryError, ValueError):
        raise LikewiseError(
            f"spec '{text[:40]}...' cannot be parsed: it is too deeply nested or has an invalid value; simplify it"
        ) from None
    except SyntaxError as error:
        raise LikewiseError(
            f"spec '{text[:200]}' cannot be read ({error.msg} at character {error.offset}); "
            'write it like "MultiSimilarity(alpha=2, miner=HardPairs(eps=0.1))"'
        ) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > 2**53:
            raise LikewiseError(
                f"spec '{text[:40]}...': whole numbers must be between -2**53 and 2**53, got a larger one"
            )
        if not isinstance(node, ast.Call):
            continue
        words = [word.arg for word in node.keywords]
        if twice := [word for word in words if words.count(word) > 1]:
            raise LikewiseError(
                f"spec '{text}': {ast.unparse(node.func)} has the argument {twice[0]} twice; remove one"
            )
    return tree


def _make(node: ast.expr, text: str, facts: dict, allow_imports: bool):
    node, component = _call(node, text, allow_imports)
    if node.args:
        raise LikewiseError(
            f"spec '{text}': arguments must be given by name, got '{ast.unparse(node.args[0])}' without one; "
            f"{component.__name__} takes: {', '.join(_parameters(component)) or 'none'}"
        )
    own = _parameters(component)
    parameters = own | {name: p for name, p in _passed_on(component).items() if name not in own}
    hints = _hints(component)
    given = {k.arg: _value(k.value, text, facts, allow_imports) for k in node.keywords}
    given = {k.arg: _adopted(given[k.arg], hints.get(k.arg), k.value) for k in node.keywords}
    _must_take(component, given, parameters)
    for name, value in given.items():
        if name in hints and not argument_checks.fits(value, hints[name]):
            shown = type(value).__name__ if _is_component(value) else repr(value)
            raise LikewiseError(
                f"{component.__name__}: {name} must be {argument_checks.words(hints[name])}, got {shown}"
            )
    # `canonical` writes the default None of an argument that the run fills in and that is no name of FACT_NAMES
    left_out = [n for n in parameters if n not in given or (given[n] is None and n not in FACT_NAMES)]
    filled = {name: facts[name] for name in left_out if name in facts}
    given = {name: value for name, value in given.items() if name not in filled}
    needed = [n for n, p in parameters.items() if p.default is p.empty and n not in given and n not in filled]
    filled |= {n: facts[FOREIGN_FACT_NAMES[n]] for n in needed if FOREIGN_FACT_NAMES.get(n) in facts}
    missing = [n for n in needed if n not in filled and n in own]
    if missing:
        raise LikewiseError(
            f"{component.__name__} needs {', '.join(missing)}; write {component.__name__}({missing[0]}=...)"
        )
    try:
        made: typing.Any = component(**given, **filled)  # pyright: ignore[reportCallIssue]
    except (TypeError, KeyError, AssertionError, ValueError) as error:
        if component.__module__.startswith("likewise."):
            raise
        raise LikewiseError(
            f"spec '{text}': {component.__name__} cannot be built with these arguments ({error}); see its documentation"
        ) from None
    if hasattr(component, "written"):
        made.source = ast.unparse(node)
    return made


def _call(node: ast.expr, text: str, allow_imports: bool) -> tuple[ast.Call, type]:
    """Return a component in a spec as a call node, and the class that it names."""
    if isinstance(node, ast.Name | ast.Attribute):
        node = ast.Call(node, [], [])
    if not isinstance(node, ast.Call):
        raise LikewiseError(f"spec '{text}': a component must be a name with arguments, got '{ast.unparse(node)}'")
    component = _resolve(node.func, text, allow_imports)
    if not inspect.isclass(component):
        raise LikewiseError(
            f"spec '{text}': '{ast.unparse(node.func)}' is not a class, so it cannot be built as a component"
        )
    return node, component


def _must_take(component: type, given: Iterable[str | None], parameters: dict) -> None:
    for name in given:
        if name not in parameters:
            raise LikewiseError(
                f"{component.__name__} has no argument '{name}'{nearest_name(str(name), parameters)} "
                f"It takes: {', '.join(parameters) or 'none'}"
            )


def names_in(text: str) -> tuple[str | None, list[str]]:
    """Return the component that a spec names, None for a dotted name, and the components inside its arguments."""
    node = _parse(text)
    node = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    calls = [one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    is_plain = isinstance(node.func, ast.Name)
    return (calls[0], calls[1:]) if is_plain and calls else (None, calls)


def check_names(text: str) -> None:
    """Raise for an unknown component or argument in a spec, without building it. Dotted names are not checked."""
    tree = _parse(text)
    for node in ast.walk(ast.Call(tree, [], []) if isinstance(tree, ast.Name) else tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            component = _resolve(node.func, text, False)
            _must_take(component, [k.arg for k in node.keywords], _parameters(component) | _passed_on(component))


def _adopted(value, want, node: ast.expr):
    """Return a loss of pytorch-metric-learning wrapped as a likewise loss, if the annotation needs a likewise loss."""
    if want is None or argument_checks.fits(value, want):
        return value
    from likewise.core.adapters.pml import FromPML, is_pml

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
            f"spec '{text}': '{ast.unparse(node)}' is neither a literal nor a component; "
            f"write a component with brackets, {ast.unparse(node)}(), and text in quotes"
        )
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(n, text, facts, allow_imports) for n in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # another kind of expression, or a dict key that cannot be hashed
        raise LikewiseError(
            f"spec '{text}': '{ast.unparse(node)}' is not a literal; a spec may contain only names and literals"
        ) from None


def _resolve(node: ast.expr, text: str, allow_imports: bool):
    name = ast.unparse(node)
    if isinstance(node, ast.Name):
        registry = _registry()
        if name not in registry:
            raise LikewiseError(
                f"spec '{text}': there is no component called '{name}'{nearest_name(name, registry)} "
                "`likewise list` shows all components"
            )
        return registry[name]
    if not isinstance(node, ast.Attribute):
        raise LikewiseError(f"spec '{text}': '{name}' is not a name")
    return import_dotted(name, f"spec '{text}'", allow_imports)


def import_dotted(name: str, owner: str, allow_imports: bool):
    """Return the object with a dotted name, such as `my_lab.losses.Mine`.

    Args:
        owner: first words of the error, such as "spec 'my_lab.losses.Mine()'".
        allow_imports: the user's permission (`--allow-imports`). It is never stored in a run folder.
    """
    if not allow_imports:
        raise LikewiseError(
            f"{owner}: '{name}' would be imported, which runs its code; "
            "add --allow-imports (Python: allow_imports=True) if it is trusted code"
        )
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LikewiseError(
            f"{owner}: '{name}' cannot be imported ({error}); check the name, and that its folder is on PYTHONPATH"
        ) from None


def _parameters(component: type) -> dict[str, inspect.Parameter]:
    """Return the named arguments of a class, without *args and **kwargs, which a module without a constructor inherits."""
    found = inspect.signature(component).parameters
    return {n: p for n, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _passed_on(component: type) -> dict[str, inspect.Parameter]:
    """Return the further arguments of a component with **kwargs: the arguments of its base classes."""
    if all(p.kind is not p.VAR_KEYWORD for p in inspect.signature(component).parameters.values()):
        return {}
    found: dict[str, inspect.Parameter] = {}
    for base in component.__mro__[1:]:
        for name, p in inspect.signature(base.__init__).parameters.items() if "__init__" in vars(base) else ():
            if name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                found.setdefault(name, p)
    return found


def _hints(component: type) -> dict:
    try:
        return typing.get_type_hints(component.__init__)
    except (NameError, TypeError):  # an imported component with annotations that cannot be resolved
        return {}


def name_of(component: type) -> str:
    return (
        component.__name__
        if _registry().get(component.__name__) is component
        else f"{component.__module__}.{component.__qualname__}"
    )


def _is_component(value) -> bool:
    return inspect.isclass(type(value)) and type(value).__module__ not in ("builtins",)


def _same(a, b) -> bool:
    if _is_component(a) or _is_component(b):
        return type(a) is type(b) and _text(a) == _text(b)
    return (type(a) is type(b) and a == b) or (isinstance(a, int | float) and isinstance(b, int | float) and a == b)


def _text(value) -> str:
    if isinstance(value, list | tuple):
        inside = ", ".join(_text(v) for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    # ast.unparse writes infinity as 1e309.
    return spec(value) if _is_component(value) else ast.unparse(ast.Constant(value))
