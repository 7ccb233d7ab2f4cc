"""Every candidate of the quantised products, compiled for a Hopper GPU without one: it fits and uses what it is for."""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from triton.backends import nvidia

from parkway.backends.cuda import nvrtc, quantised_config
from parkway.backends.cuda.quantised_config import entry, lines
from parkway.backends.cuda.quantised_pack import LAYOUTS
from parkway.errors import StartError

TOOLS = Path(nvidia.__file__).parent / "bin"
REGISTERS = 65536
DECODERS = [
    entry("Decoded", f"{function}<{name}>", 128) for function in ("decode_bands", "decode_rows") for name in LAYOUTS
]


class Compiled(NamedTuple):
    """What the compiler said, registers of a thread, bytes of stack (where spills lie), instructions by name."""

    line: str
    said: str
    registers: int
    stack: int
    instructions: Counter[str]


def compiled(line: str, folder: Path) -> Compiled:
    cubin, said = nvrtc.compiled("quantised.cu", line, "sm_90a")
    path = folder / f"{abs(hash(line))}.cubin"
    path.write_bytes(cubin)
    told = _run("cuobjdump", "--dump-resource-usage", path)
    registers, stack, local = (int(re.findall(rf"{name}:(\d+)", told)[-1]) for name in ("REG", "STACK", "LOCAL"))
    code = _run("nvdisasm", "-c", path)
    names = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+ )?([A-Z0-9]+)", code, re.MULTILINE)
    return Compiled(line, said, registers, stack + local, Counter(names))


def _run(tool: str, *arguments: str | Path) -> str:
    return subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True, check=True).stdout


def one_each(types: Sequence[str]) -> list[str]:
    """A line of every type, each of another kind; all of every type would take minutes."""
    return [of_type[5 * i % len(of_type)] for i, of_type in enumerate(map(lines, types))]


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantised_config, "has_warpgroups", lambda: True)
        todo = [*lines("Q4_K"), *one_each([name for name in LAYOUTS if name != "Q4_K"])]
    folder = tmp_path_factory.mktemp("cubins")
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda line: compiled(line, folder), todo))


def test_products_fit_and_none_spills(products: list[Compiled]) -> None:
    for each in products:
        most_threads = int(re.findall(r"__launch_bounds__\((\d+),", each.line)[0])
        assert each.registers * most_threads <= REGISTERS, each
        assert each.stack == 0, each
        assert not each.said, each  # such as that the matrix unit has to wait
        assert each.instructions["ACQBULK"], each  # griddepcontrol.wait


def test_products_use_the_matrix_unit_and_asynchronous_copies(products: list[Compiled]) -> None:
    assert {"FourWarps" in each.line for each in products} == {False, True}
    assert {"multiply_few" in each.line for each in products} == {False, True}
    for each in products:
        four_warps = "FourWarps" in each.line
        assert each.instructions["HGMMA" if four_warps else "HMMA"] in (16, 32, 64, 128, 256), each
        assert four_warps or each.instructions["LDSM"], each
        assert each.instructions["UBLKCP" if "multiply_few" in each.line else "LDGSTS"], each


def test_a_weight_takes_few_instructions(products: list[Compiled]) -> None:
    """Of Q4_K a lane has 64 weights of a tile of each band: half a mask and two halves of a multiply-add for each.

    The numbers that they are multiplied with and added to are halves of a word, which take no instruction.
    """
    for each in products:
        if "Q4_K, 2, 1" in each.line:
            assert 128 <= each.instructions["HFMA2"] <= 128 + 8, each
            assert each.instructions["LOP3"] <= 64 + 32, each
            names = "FFMA", "HADD2", "F2FP", "PRMT"
            assert sum(each.instructions[name] for name in names) <= 16, each


def test_decoders_do_not_spill(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda line: compiled(line, tmp_path), DECODERS))
    for each in made:
        assert (each.stack, each.said) == (0, ""), each


def test_older_gpus_have_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever GPU this machine has."""
    monkeypatch.setattr(quantised_config, "has_warpgroups", lambda: False)
    for line in lines("Q6_K"):
        cubin, _ = nvrtc.compiled("quantised.cu", line, "sm_80")
        assert cubin


def test_a_fault_is_told_in_the_compilers_words() -> None:
    with pytest.raises(StartError, match=r"quantised\.cu did not compile for sm_90a: (.|\n)*no_such_thing"):
        nvrtc.compiled("quantised.cu", "__device__ int x = no_such_thing;", "sm_90a")


def test_a_kernel_is_compiled_once(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = DECODERS[0]
    first = nvrtc.kept("quantised.cu", line, "sm_90a")
    monkeypatch.setattr(nvrtc, "compiled", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.kept("quantised.cu", line, "sm_90a") == first
    assert len(list((cache_folder / "parkway" / "kernels").iterdir())) == 1
