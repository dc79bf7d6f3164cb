"""Everything that needs a GPU with CUDA, in one go: tests of counting there, then figures. `make gpu` runs it.

It needs torch with CUDA, numpy and pytest. What else is missing is named, with what is left out for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
_TESTS: dict[str, tuple[str, ...]] = {
    "tests/tensors/test_gpu.py": (),
    "tests/tensors/test_device.py": ("hypothesis",),
    "tests/tensors/test_host.py": ("hypothesis",),
    "tests/tensors/test_bounds.py": ("hypothesis",),
    "tests/tensors/test_tally.py": (),
    "tests/adapters/test_waits.py": (),
    "tests/adapters/test_gpu_training.py": ("trl",),
}
"""The files, each with the packages that it cannot do without."""
_TRAINERS: dict[str, tuple[str, ...]] = {
    "tests/adapters/test_grpo.py": ("trl",),
    "tests/stack/test_models.py": ("trl", "peft"),
}
"""Tests with real trainers, which then train on the GPU: those that count each number once more by hand."""
_JUDGED: dict[str, tuple[str, ...]] = {
    "tests/versions/test_healthy.py": ("trl",),
    "tests/faults/test_faults.py": ("trl",),
}
"""Whole runs in bf16, healthy and with planted faults: what its kernels do to what is judged."""


def main() -> int:
    """Run it all; return 0 if all passed, 1 if something failed or there is no GPU."""
    reason = _no_gpu()
    if reason:
        print(f"gpu: no GPU with CUDA was found ({reason}), so nothing was run")
        return 1
    import torch

    print(f"gpu: {torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    failed = _tested("tests", _TESTS)
    # A scaler of fp16 is put on the CPU there.
    failed |= _tested("real trainers", _TRAINERS, "-k", "independent_count and not fp16")
    many = ("-n", str(os.cpu_count() or 1)) if find_spec("xdist") else ()
    failed |= _tested("healthy runs and planted faults", _JUDGED, "-k", "grpo or rloo", *many)
    print("gpu: figures", flush=True)
    from benchmarks import gpu

    for line in gpu.rows():
        print(line, flush=True)
    if find_spec("trl"):
        from benchmarks import gpu_step

        for line in gpu_step.rows():
            print(line, flush=True)
    print(f"gpu: {'a test failed' if failed else 'all passed'}")
    return 1 if failed else 0


def _tested(title: str, files: dict[str, tuple[str, ...]], *options: str) -> int:
    """Run those of ``files`` whose packages are there; return what pytest returns."""
    for file, needs in files.items():
        if missing := [need for need in needs if find_spec(need) is None]:
            print(f"gpu: {file} is left out, since {' and '.join(missing)} is missing")
    found = [file for file, needs in files.items() if all(map(find_spec, needs))]
    if not found:
        return 0
    print(f"gpu: {title}", flush=True)
    # The settings of pytest in pyproject.toml without those of plug-ins that may be missing.
    own = ["-o", "addopts=", "--import-mode=importlib", "-ra", "-W", "default", "--durations=10"]
    return subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", "-q", *own, *options, *sys.argv[1:], *found],
        cwd=ROOT,
        env={**os.environ, "RLEXPORTER_TEST_DEVICE": "cuda"},
    ).returncode


def _no_gpu() -> str:
    try:
        import torch
    except ImportError:
        return f"{sys.executable} has no torch"
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "torch.cuda.is_available() is False"


if __name__ == "__main__":
    sys.exit(main())
