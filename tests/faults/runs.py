"""Real trainings with a fault from a step on, by the demo's trainers and with its model."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
import torch
from transformers import LlamaForCausalLM, TrainerCallback, set_seed

import rlexporter
from rlexporter import Exporter
from rlexporter.demo import tiny
from tests.conditions.began import began
from tests.versions import demo_trainers

SEED = 41
GROUP = 8
"""Completions of a prompt, in GRPO and RLOO."""
BATCH = 32
_OF_GROUPS = {"num_iterations": 1, "eval_strategy": "no"}
_OF_LEGACY = {"vf_coef": 1.0, "target": 0.1}
"""A critic that has learned something when a fault begins, and a KL above its target, so that its coefficient moves."""
_SAMPLING = {"max_new_tokens": tiny.MAX_COMPLETION, "do_sample": True, "top_k": 0, "pad_token_id": 0, "eos_token_id": 1}
_PROMPTS = [f"{letter}{word}:" for letter in tiny.LETTERS for word in tiny.WORDS]
"""Different ones, so that the same one seldom comes twice in a row; each asks for its first letter."""

Rewards = Callable[..., list[float]]
"""A reward function: of prompts and completions."""


class Run(TrainerCallback):  # type: ignore[misc] # transformers is not checked
    """One training of ``algorithm``, whose fault begins in step ``at``. ``options``: settings of the trainer."""

    def __init__(self, algorithm: str, folder: Path, *, at: int, steps: int, **options: Any) -> None:
        set_seed(SEED)
        self.algorithm, self.at, self.step = algorithm, at, 1
        self.functions: list[Rewards] = [tiny.letter_reward, tiny.length_reward]
        """The reward functions, which a fault may replace while the trainer calls them."""
        self.prompts: Callable[[], list[str]] = functools.partial(random.Random(SEED).choices, _PROMPTS, k=BATCH)
        """Makes the prompts of a step of legacy PPO."""
        self.sampling: dict[str, Any] = {**_SAMPLING}
        """How legacy PPO samples."""
        self.began: dict[tuple[str, str], int] = {}
        """The step in which each condition began first, by name and severity."""
        self.restore: Callable[[], object] = lambda: None
        """Undoes what a fault has done to a module."""
        self._actions: dict[int, list[Callable[[], object]]] = {}
        self._steps = steps
        self._build(folder, {"seed": SEED, **options})

    def _build(self, folder: Path, options: dict[str, Any]) -> None:
        if self.algorithm == "ppo-legacy":
            self.trainer = demo_trainers.legacy(self._steps, folder, [], **{**_OF_LEGACY, **options}).trainer
            return
        model = LlamaForCausalLM.from_pretrained(folder / "tiny-llama")
        rewards = [self._watched(0, "letter_reward"), self._watched(1, "length_reward")]
        if self.algorithm != "ppo":
            options = {**_OF_GROUPS, **options}
        self.trainer = demo_trainers.modern(self.algorithm, self._steps, folder, model, rewards, **options)
        if self.algorithm != "ppo":
            self.trainer.train_dataset = datasets.Dataset.from_dict({"prompt": _PROMPTS})
        self.trainer.add_callback(self)

    def _watched(self, place: int, name: str) -> Callable[..., list[float]]:
        def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
            return self.functions[place](prompts=prompts, completions=completions)

        reward.__name__ = name
        return reward

    # What a fault is planted with, before the training begins

    @property
    def faulty(self) -> bool:
        """Whether the step under way is that of the fault or a later one."""
        return self.step >= self.at

    def when(self, step: int, action: Callable[[], object]) -> None:
        """Call ``action`` before ``step``."""
        self._actions.setdefault(step, []).append(action)

    def begin(self, action: Callable[[], object]) -> None:
        """Call ``action`` before the step of the fault."""
        self.when(self.at, action)

    def each(self, action: Callable[[], object]) -> None:
        """Call ``action`` before each step from that of the fault on."""
        for step in range(self.at, self._steps + 1):
            self.when(step, action)

    def around(self, owner: Any, name: str, faulty: Callable[..., Any]) -> None:
        """Call ``faulty(method, ...)`` in place of a method of ``owner`` from the step of the fault on."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def either(*args: Any, **kwargs: Any) -> Any:
            return faulty(method, *args, **kwargs) if self.faulty else method(*args, **kwargs)

        setattr(owner, name, either)

    # What a fault may be planted in

    @property
    def policy(self) -> Any:
        """The model that is trained and sampled from, without its value head."""
        model = self.trainer.model
        return {"ppo": lambda: model.policy, "ppo-legacy": lambda: model.pretrained_model}.get(
            self.algorithm, lambda: model
        )()

    @property
    def optimizer(self) -> Any:
        """That of torch, without what accelerate puts around it."""
        optimizer = self.trainer.optimizer
        return getattr(optimizer, "optimizer", optimizer)

    @property
    def module(self) -> ModuleType:
        """The module of PPO's loop."""
        kind = next(each for each in type(self.trainer).__mro__ if each.__name__ == "PPOTrainer")
        return sys.modules[kind.__module__]

    # The training

    def train(self) -> Exporter:
        """Train to the end, or until a rollout dies of the fault."""
        exporter = self._exporter = self.attached()
        try:
            if self.algorithm == "ppo-legacy":
                self._loop()
            else:
                self._before(1)
                self.trainer.train()
        except RuntimeError as error:
            if "probability tensor" not in str(error):
                raise
            exporter.end(error)
        finally:
            self.restore()
        exporter.close()
        self._look()
        return exporter

    def attached(self) -> Exporter:
        """Attach to the trainer."""
        return rlexporter.attach(self.trainer)

    def over(self) -> bool:
        """Tell if the loop of legacy PPO is to end after the step that is done."""
        return False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Modern trainers: the next step begins."""
        if self.algorithm == "ppo":
            self._before(state.global_step + 1)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainers of groups say when; the first step has begun before."""
        if state.global_step:
            self._before(state.global_step + 1)

    def _before(self, step: int) -> None:
        self.step = step
        self._look()
        with torch.no_grad():
            for action in self._actions.get(step, ()):
                action()

    def _look(self) -> None:
        """Keep when each condition began first: what is served is when it did last."""
        for key, step in began(self._exporter).items():
            self.began.setdefault(key, step)

    def _loop(self) -> None:
        """Train with legacy PPO as its examples do: generate, reward, step, log."""
        tokenizer, trainer = tiny.tokenizer(), self.trainer
        for step in range(1, self._steps + 1):
            self._before(step)
            prompts = self.prompts()
            queries = [tokenizer(prompt, return_tensors="pt")["input_ids"][0] for prompt in prompts]
            sampled = trainer.generate(queries, return_prompt=False, **self.sampling)
            texts = tokenizer.batch_decode(sampled, skip_special_tokens=True)
            by_function = [reward(prompts=prompts, completions=texts) for reward in self.functions]
            scores = [sum(each) for each in zip(*by_function, strict=True)]
            rewards = [torch.tensor(score) for score in scores]
            stats = trainer.step(queries, list(sampled), rewards)
            trainer.log_stats(stats, {"query": prompts, "response": texts}, rewards)
            if self.over():
                break


@contextmanager
def weights(model: Any, other: dict[str, Any]) -> Iterator[None]:
    """Give ``model`` the weights ``other`` for a while."""
    own = copy(model)
    model.load_state_dict(other)
    try:
        yield
    finally:
        model.load_state_dict(own)


def copy(model: Any) -> dict[str, Any]:
    """Return the weights of ``model`` as they are now."""
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}
