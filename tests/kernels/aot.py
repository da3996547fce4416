"""Compiles launches without a GPU and reads what came out: the compile gate's eyes."""

import functools
import math
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import triton  # pyright: ignore
from triton.backends.compiler import GPUTarget  # pyright: ignore
from triton.compiler import ASTSource  # pyright: ignore

from perc.kernels import launch as launching
from perc.kernels.launch import Launch

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
BIN = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin"
NAMES = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "uint8": "*u8",
    "int8": "*i8",
    "int32": "*i32",
}


class Compiled(NamedTuple):
    """What a CUDA compiler made of one kernel."""

    ptx: str
    sass: str
    registers: int
    stack: int
    local: int
    threads: int

    def count(self, pattern: str) -> int:
        """Instructions of the program that match."""
        return len(re.findall(pattern, self.sass))

    @property
    def instructions(self) -> int:
        """Instructions, the padding after the last branch left out."""
        lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?(\w+)", self.sass)
        return sum(1 for name in lines if name not in ("NOP", "BRA"))


def compile_launch(launch: Launch, target: str) -> Any:
    """Triton's compilation of a launch, with the options of the real call."""
    function = launching.kernel(launch)
    buffers = (*launch.inputs, *launch.updated, *launch.outputs)
    names = function.arg_names
    signature = {n: "constexpr" for n in names}
    for name, buffer in zip(names, buffers, strict=False):
        signature[name] = NAMES[buffer.dtype.name]
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(len(buffers))}
    source = ASTSource(function, signature, dict(launch.constants), attrs)
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    if target.startswith("sm"):
        options |= launching.OPTIONS
    else:
        options["enable_fp_fusion"] = False
    return triton.compile(source, target=TARGETS[target], options=options)


def cuda(launch: Launch, target: str = "sm_90") -> Compiled:
    """Compiles a launch for a CUDA target and reads its machine code."""
    made = compile_launch(launch, target)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        sass = _tool("cuobjdump", "-sass", file.name)
    found = {k: int(v) for k, v in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return Compiled(
        made.asm["ptx"],
        sass,
        found["REG"],
        found["STACK"],
        found["LOCAL"],
        32 * launch.warps,
    )


def amd(launch: Launch) -> str:
    """Assembly of a launch for gfx942."""
    return compile_launch(launch, "gfx942").asm["amdgcn"]


def issue_share(made: Compiled, launch: Launch, bytes_moved: int) -> float:
    """Issue slots that a kernel needs beside its bytes, 1 = as long as the bytes.

    An H200 copies 4.3 TB/s and issues 4 instructions a cycle on each of 132 cores at
    1.98 GHz; a loop is counted once.

    Args:
        made: the compiled kernel.
        launch: what was compiled; its grid says how many programs there are.
        bytes_moved: by the whole grid, in and out.
    """
    warps = math.prod(launch.grid) * launch.warps
    issue_s = warps * made.instructions / (132 * 4 * 1.98e9)
    return issue_s / (bytes_moved / 4.3e12)


@functools.cache
def _path(tool: str) -> str:
    return str(BIN / tool)


def _tool(tool: str, *arguments: str) -> str:
    # cuobjdump looks for nvdisasm on PATH
    done = subprocess.run(
        [_path(tool), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{BIN}:/usr/bin:/bin"},
    )
    return done.stdout
