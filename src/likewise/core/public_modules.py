"""Short public names of modules: `likewise.losses` for `likewise.learn.losses`. Standard library only."""

import importlib
import importlib.machinery
import sys

PUBLIC_MODULES = {
    "adapters": "core.adapters", "config": "core.settings", "contracts": "core.contracts", "durations": "core.durations",
    "errors": "core.errors", "similarity": "core.similarity", "supervision": "core.supervision", "types": "core.types",
    "noise": "data.noise", "protocols": "data.protocols", "relevance": "data.relevance", "metrics": "score.metrics",
    "confidence": "learn.confidence", "loggers": "learn.loggers", "losses": "learn.losses", "miners": "learn.miners",
    "recipes": "learn.recipes", "samplers": "learn.samplers", "terms": "learn.terms",
}  # fmt: skip
"""Public name of a module -> its place: `likewise.losses` is short for `likewise.learn.losses`, also in import statements."""


class PublicModules:
    """Imports a public module, or a module below it, under its short name; both names are of one module object.

    A finder and loader without their base classes: importing those would import more of the standard library.
    """

    def find_spec(self, fullname, path=None, target=None):
        first, _, rest = fullname.partition(".")
        name, _, below = rest.partition(".")
        if first != "likewise" or name not in PUBLIC_MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=not below)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec):
        return None  # an empty module, until `exec_module` puts the real one in its place

    def exec_module(self, module):
        _, name, *below = module.__name__.split(".")
        sys.modules[module.__name__] = importlib.import_module(".".join(["likewise", PUBLIC_MODULES[name], *below]))


sys.meta_path.insert(0, PublicModules())  # before the finder of files, which would load a second copy
