"""Use an installed rlexporter: `python - VERSION DATA [EXTRA ...] <scripts/installed.py`, outside of the checkout.

`scripts/dist` runs this in environments that have the wheel, the extras that are named, and nothing else. DATA is the
folder of recorded runs. The standard library and what rlexporter itself needs are all that this uses.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import rlexporter

BROKEN = "ppo-value_nan-0.jsonl"


def told(status: int, words: str, *arguments: str | Path) -> None:
    """Run a command, which must end with ``status`` and have ``words`` in what it prints, without a traceback."""
    command = [str(Path(sys.executable).with_name("rlexporter")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603 - our own
    said = done.stdout + done.stderr
    assert done.returncode == status, (arguments, done.returncode, said)
    assert words in said, (arguments, said)
    assert "Traceback" not in said, (arguments, said)


def read(data: Path) -> None:
    """Use everything that reads a recording or writes files: it needs no extra."""
    told(0, f"rlexporter {rlexporter.__version__}", "--version")
    told(2, "RLValueLossNonFinite", "check", data / BROKEN)
    told(0, "", "report", data / BROKEN, "-o", "dist.html")
    told(0, "rlexporter.rules.yml", "generate", "--out", "dist-pack")
    told(0, " on http://127.0.0.1:", "tail", data / BROKEN, "--port", "0", "--linger", "0")
    told(0, " metrics served", "replay", data / BROKEN, "--speed", "max", "--port", "0", "--linger", "0")


def serve(extras: list[str]) -> None:
    """A run that logs and observes arrays, and with torch tensors; what asks it for its status."""
    with rlexporter.Exporter(run="dist", port=0, linger=0) as exporter:
        exporter.observe("policy_ratio", np.array([0.5, 1.0, 1.5]))
        seen = 3
        if "torch" in extras:
            import torch

            exporter.observe("policy_ratio", torch.tensor([1.0, 1.0]))
            seen += 2
        exporter.log({"reward": 1.5}, step=1)
        with urllib.request.urlopen(f"{exporter.url}/metrics", timeout=60) as response:  # noqa: S310 - our own
            scraped = response.read().decode()
        assert 'rl_reward_mean{rank="0",run="dist"} 1.5' in scraped, scraped
        assert f'rl_policy_ratio_dist_count{{rank="0",run="dist"}} {seen}.0' in scraped, scraped
        told(0, "fine", "status", str(exporter.url))
        exporter.log({"reward": 1.5, "loss": float("nan")}, step=2)
        time.sleep(2)  # an answer is served again for a second
        told(2, "Lower `learning_rate`", "status", str(exporter.url))  # from a runbook, which is in the wheel
        if "top" in extras:
            told(2, "dist", "top", "--once", str(exporter.url))
        else:
            told(2, "pip install 'rlexporter[top]'", "top", "--once", str(exporter.url))


def attach(extras: list[str]) -> None:
    """Without torch one line says what to install; with it `attach` looks at what it was given, which is no trainer."""
    said = "nothing"
    try:
        rlexporter.attach(object())
    except rlexporter.SetupError as error:
        said = str(error)
    assert ("does not know what a object logs" if "torch" in extras else "pip install 'rlexporter[torch]'") in said, (
        said
    )
    told(2, "pip install 'trl>=1.16'", "demo")


def main() -> None:
    """Use it; raise AssertionError for what does not work."""
    version, data, *extras = sys.argv[1:]
    assert rlexporter.__version__ == version, rlexporter.__version__
    assert rlexporter.__file__.startswith(sys.prefix), rlexporter.__file__
    assert (find_spec("torch") is not None) == ("torch" in extras), "torch"
    assert (find_spec("rich") is not None) == ("top" in extras), "rich"
    if not extras:
        read(Path(data))
    serve(extras)
    attach(extras)


if __name__ == "__main__":
    main()
