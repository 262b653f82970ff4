"""Whether a native module was built from its sources, and how one in a zip is loaded.

In a checkout the sources change by `git pull`, and the module only by a build.  A module of
older sources lacks what Python calls: it is treated as one that was not built.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Final
from zipimport import zipimporter

FILE: Final = "_native.abi3.so"  # in the package's folder, for every Python of one platform


class Outdated(ImportError):
    """The module is older than its sources."""


def check_built(package: str) -> None:
    """Raise Outdated where a source in the folder of `package` (its `__file__`), or here, is newer.

    An installed package and a zip have no sources, and pass.
    """
    folder = Path(package).parent
    sources = [*folder.glob("*.pyx"), *folder.glob("*.pxi")]
    sources += Path(__file__).parent.glob("*.pxi") if sources else ()
    built = [path.stat().st_mtime for path in folder.glob("_native.*so")]
    if built and sources and max(path.stat().st_mtime for path in sources) > max(built):
        raise Outdated(f"{folder} was changed after it was built: `make native` builds it anew")


def load_from_zip(package: ModuleSpec) -> None:
    """Load the native module of a package that lies in a zip, as `--py-files` brings it.

    A system loads libraries from files only: the module is one for as long as that takes.  Where
    none is in the zip, or no zip is there, nothing happens.  A library of another platform raises
    ImportError.
    """
    loader: object = package.loader
    if not isinstance(loader, zipimporter) or package.origin is None:
        return
    try:
        library = loader.get_data(str(Path(package.origin).with_name(FILE)))
    except OSError:
        return
    name = f"{package.name}._native"
    with tempfile.TemporaryDirectory(prefix="gauss-cdc-native-") as folder:
        file = Path(folder, FILE)
        file.write_bytes(library)
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    sys.modules[name] = module
