"""What pyproject.toml cannot say: installing builds the native engine with the system's C compiler, if there is one.

The engine is a plain shared library that Python opens with ctypes. It uses no Python API, so one wheel per platform fits
every Python 3. Without a compiler the package installs all the same, and numpy computes.
"""

import importlib.util
import os
import platform
import re
import shutil
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/regard/engine/native")
spec = importlib.util.spec_from_file_location("native_build", NATIVE / "build.py")
assert spec is not None
assert spec.loader is not None
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)


class BuildNative(build_ext):
    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).parent
        try:
            native.build(target)
        except native.NoCompiler as problem:
            self.warn(f"The native engine was not built, numpy will compute instead: {problem}")

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")[:-1]) / native.NAME)

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if Path(path).exists()]

    def copy_extensions_to_source(self) -> None:
        """An editable install: into the tree itself."""
        built = Path(self.build_lib) / "regard" / "engine" / "native" / native.NAME
        if built.exists():
            new = shutil.copy(built, NATIVE / f"{native.NAME}.new")
            os.replace(new, NATIVE / native.NAME)  # whoever runs on the old one keeps it


def one_processor(platform_tag: str, machine: str) -> str:
    """The wheel's platform. A universal Python on macOS says universal2, but the engine is built for this processor alone;
    arm64 begins with macOS 11."""
    tag = platform_tag.replace("universal2", machine)
    return re.sub(r"^macosx_10_\d+_arm64$", "macosx_11_0_arm64", tag)


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", one_processor(super().get_tag()[2], platform.machine()))


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


if __name__ == "__main__":
    setup(
        distclass=WithLibrary,
        ext_modules=[Extension("regard.engine.native.engine", sources=[str(p) for p in sorted(NATIVE.glob("*.c"))])],
        cmdclass={"build_ext": BuildNative, "bdist_wheel": AnyPython},
    )
