"""The reader of log keys: each way in which TRL's trainers write one."""

from __future__ import annotations

import ast

from scripts.log_keys import inherited, logged

KEYS: list[tuple[str, set[str]]] = [
    ('self._metrics[mode]["reward"].append(1)', {"reward"}),
    ('self._metrics["train"][f"rewards/{name}/mean"].append(1)', {"rewards/{name}/mean"}),
    ('metrics = self._metrics["train"]; metrics["perf/step_s"].append(1)', {"perf/step_s"}),
    ('self.metrics["batch/pad_frac"].append((1, 2))', {"batch/pad_frac"}),
    ('self._rates["tools/latency_s"][0] += 1', {"tools/latency_s"}),
    ('self._counters[f"tools/{name}/call_total"] += 1', {"tools/{name}/call_total"}),
    ('self.stats = {"beta": []}; self.stats["objective/kl"].append(1)', {"beta", "objective/kl"}),
    ('self.log({"loss": 1})', {"loss"}),
    ('logs["on_policy_loss"] = 1; self.log(logs)', {"on_policy_loss"}),
    ('logs.update({"mine": 1})', {"mine"}),
    ('metrics = {"a": 1, **{f"b/{name}": 2 for name in names}}; self.store_metrics(metrics)', {"a", "b/{name}"}),
    ('self.last_metrics = {"share": 1}', {"share"}),
    ('self._push_metrics({"rollout/inflight": 1})', {"rollout/inflight"}),
    ('self.accelerator.log({"win_rate": 1})', {"win_rate"}),
    ("self.log(dict(loss=1))", {"loss"}),
    ('prefix = "eval_" if x else ""\n    metrics[f"{prefix}nll_loss"] = 1', {"nll_loss"}),
    ('prefix = "on" if x else "off"\n    self._metrics[mode][f"{prefix}_loss"].append(1)', {"on_loss", "off_loss"}),
    ('key = "kl" + suffix\n    self._metrics[mode][key].append(1)', {"kl{suffix}"}),
    ('for key in ("a", "b"): self._metrics[mode][key].append(1)', {"a", "b"}),
    ('for key, value in (("a", 1), ("b", 2)): metrics[key] = value', {"a", "b"}),
    ('for key, value in {"a": 1}.items(): metrics[key] = value', {"a"}),
    ("for key, value in stored.items(): logs[key] = value", {"{key}"}),
    ('wandb.log({"completions": table}); self._logs["prompt"].extend(texts); math.log(x)', set()),
    ('self._metrics = {"train": [], "eval": []}; metrics[0]', set()),
]
"""Bodies of functions, and the keys that each logs; what only a run tells is in braces."""


def test_every_key_is_found() -> None:
    """In a dictionary, a variable, a loop or a prefix."""
    found = [(body, logged([ast.parse(f"def function(self):\n    {body}")])) for body, _ in KEYS]

    assert found == KEYS


def test_a_name_that_is_handed_over_is_followed() -> None:
    """From the call to the method that logs; what else is handed over is known only when it runs."""
    source = """
class Trainer:
    def step(self):
        self.add("ratio", 1)
        self.add(value=2, key="kl")
        self.add(name(), 3)
    def add(self, key, value):
        self._metrics["train"][key].append(value)
"""
    assert logged([ast.parse(source)]) == {"ratio", "kl", "{key}"}


def test_what_a_class_replaces_is_not_logged() -> None:
    """A method of a base counts if nobody replaces it, or if the one that does calls it."""
    source = """
class Base:
    def compute_loss(self): self._metrics["train"]["entropy"].append(1)
    def log(self, logs): logs["mine"] = 1
    def other(self): self._metrics["train"]["other"].append(1)
class Derived(Base):
    def compute_loss(self): pass
    def log(self, logs): super().log(logs)
"""
    base, derived = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))

    assert logged(inherited([derived, base])) == {"mine", "other"}
