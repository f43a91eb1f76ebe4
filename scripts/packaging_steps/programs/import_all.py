"""Import every module of the installed packages, except those that need an extra."""

import importlib
import pkgutil

import kwire
import storage

# The pipeline needs the extra `spark`. A `__main__` runs the program.
LEFT_OUT = ("kwire.pipeline", "kwire.cli.pipeline")
count = 0
for package in (kwire, storage):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None):
        if not module.name.startswith(LEFT_OUT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count += 1
print(f"{count} modules imported from {kwire.__file__}")
