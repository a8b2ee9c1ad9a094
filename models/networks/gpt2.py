"""A decoder of the size of DistilGPT-2 (Sanh et al., 2019) at a fixed length, built by transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

INPUT = "tokens"
_LAYERS = 6


def build() -> nn.Module:
    """Return the network: tokens 1xL to scores 1xLx50257 of the token that comes next."""
    return _Scores()


def draw(shape: tuple[int, ...]) -> Tensor:
    """Return random tokens."""
    return torch.randint(0, GPT2Config().vocab_size, shape)


class _Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = GPT2LMHeadModel(GPT2Config(n_layer=_LAYERS, use_cache=False))

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.network(input_ids=tokens, use_cache=False, return_dict=False)[0]
        return scores
