"""The native kernel; everything else about the package is in pyproject.toml.

It is optional: where it cannot be built (no compiler, another processor), training uses torch.
"""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/airprune/kernels/native")

setup(
    ext_modules=[
        Extension(
            "airprune.kernels.native._paper_cnn",
            sources=[str(NATIVE / "paper_cnn.c")],
            depends=[str(NATIVE / "paper_cnn.h"), str(NATIVE / "flat.h")],
            extra_compile_args=["-O3", "-ffp-contract=fast", "-fno-math-errno"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
