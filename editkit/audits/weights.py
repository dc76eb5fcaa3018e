"""Attacks on the weights, without training: changed in memory while questions are asked, then as they were.

with changed(model.network, lambda name, weight: weight.round(decimals=2)):
    model.generate(["What is 2 plus 3?"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from editkit.audits.subject import Arm, Dose, Scores, Subject
from editkit.checkpoints.knockout import Knockout
from editkit.evidence.attacks import Attack
from editkit.measuring.answers import answers
from editkit.measuring.ledger import Question
from editkit.models.altered import altered
from editkit.models.language_model import LanguageModel
from editkit.models.training import Parts, weights_of

Change = Callable[[str, torch.Tensor], torch.Tensor | None]
"""A parameter's name and values -> its new values; None: as it is."""


@dataclass(frozen=True)
class WeightAttack:
    """One dose.

    Args:
        change: of the weights of an arm's model, where its zeroed slices are these.
        held: whether these stay zero.
    """

    dose: str
    change: Callable[[LanguageModel, Parts], Change]
    held: bool = True


def rows(subject: Subject, audit: str, attacks: Sequence[WeightAttack], seed: int = 0) -> Iterator[Attack]:
    """One row per attack and target, beside the same attack on the control."""
    for attack in attacks:
        own = [answers(sample.task, sample.scored) for sample in subject.targets]
        others = [answers(other.task, other.scored) for other in subject.others]
        attacked = _outcomes(subject.edited, audit, attack, [*own, *others], seed)
        beside = _outcomes(subject.control, audit, attack, own, seed)
        lost = subject.lost(attacked[len(own) :])
        for sample, scores, control in zip(subject.targets, attacked, beside, strict=False):
            yield subject.row(audit, Dose(attack.dose), sample, Scores(scores), subject.beside(control), others=lost)


def _outcomes(arm: Arm, audit: str, attack: WeightAttack, asked: Sequence[Question], seed: int) -> list[list[float]]:
    """Scores, question by question."""
    name = f"{audit}, {attack.dose}, seed {seed}, of {arm.out.key.hex()}"
    change = attack.change(arm.model, slices(arm.model, arm.out))
    return arm.under(name, changed(arm.model.network, change), asked, held=attack.held)


def slices(model: LanguageModel, out: Knockout) -> Parts:
    """Which numbers an edit makes zero, by parameter: bool, shaped like it."""
    architecture = model.architecture
    own = {f"{site.module}.weight" for site in (*architecture.sites, *architecture.neuron_sites)}
    return {name: mask for name, mask in weights_of(model.network, architecture, out).items() if name in own}


@contextmanager
def changed(network: torch.nn.Module, change: Change) -> Iterator[None]:
    """The network with other weights while the block runs; then as it was, bit for bit."""
    before: dict[torch.nn.Parameter, torch.Tensor] = {}
    try:
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                values = change(name, parameter.detach())
                if values is not None:
                    before[parameter] = parameter.detach().clone()
                    parameter.copy_(values)
        with altered(network):
            yield
    finally:
        with torch.no_grad():
            for parameter, values in before.items():
                parameter.copy_(values)


def linear(network: torch.nn.Module) -> dict[str, int]:
    """The weights of the network's linear maps but the output's, and the axis of each that the input runs along."""
    from transformers.pytorch_utils import Conv1D

    axes = {torch.nn.Linear: 1, Conv1D: 0}
    output = getattr(network, "get_output_embeddings", lambda: None)()
    return {
        f"{name}.weight": axes[type(module)]
        for name, module in network.named_modules()
        if type(module) in axes and module is not output
    }
