"""The native kernel; everything else about the package is in pyproject.toml.

It is optional: where it cannot be built (no compiler, another processor), training uses torch.
"""

import hashlib
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/airprune/models/kernels/native")
SOURCES = [NATIVE / name for name in ("paper_cnn.c", "paper_cnn.h", "flat.h")]
ARGUMENTS = ["-O3", "-ffp-contract=fast", "-fno-math-errno"]
# What the kernel is built from, for it to tell: machines of a cluster compare it.
IDENTITY = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES) + " ".join(ARGUMENTS).encode()).hexdigest()

setup(
    ext_modules=[
        Extension(
            "airprune.models.kernels.native._paper_cnn",
            sources=[str(SOURCES[0])],
            depends=list(map(str, SOURCES[1:])),
            define_macros=[("KERNEL_SOURCES", f'"{IDENTITY[:12]}"')],
            extra_compile_args=ARGUMENTS,
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
