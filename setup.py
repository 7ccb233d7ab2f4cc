"""Build step beside pyproject.toml: a wheel carries the compiled CPU kernels, so that it runs without a compiler."""

import importlib.util
import logging
import shutil
from pathlib import Path
from types import ModuleType

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

CPU = Path("parkway/backends/cpu")


def compiler() -> ModuleType:
    """`parkway.backends.cpu.build`, loaded by its path: the package's dependencies need not be installed."""
    path = Path(__file__).parent / "src" / CPU / "build.py"
    spec = importlib.util.spec_from_file_location("parkway_cpu_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildWithKernels(build_py):
    @property
    def library_folder(self) -> Path:
        return Path(self.build_lib) / CPU / "lib"

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a source tree compiles its kernels when they are first needed
            return
        shutil.rmtree(self.library_folder, ignore_errors=True)
        build = compiler()
        try:
            build.compile_library(self.library_folder)
        except build.NoCompiler as error:
            logging.warning("This wheel will have no compiled CPU kernels: %s", error)


class KernelWheel(bdist_wheel):
    """Tagged for this platform if it carries the library, and for any Python: the library has a C ABI."""

    def run(self) -> None:
        self.run_command("build")
        library_folder = self.get_finalized_command("build_py").library_folder
        if any(library_folder.glob("*.so")):
            self.root_is_pure = False
            self.distribution.has_ext_modules = lambda: True  # so that files go where platform-specific ones belong
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithKernels, "bdist_wheel": KernelWheel})
