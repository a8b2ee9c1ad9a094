"""BERT-base, an encoder of text (Devlin et al., BERT, 2018), built by transformers from its default configuration."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

INPUT = "tokens"
_WORDS = 30_522


def build() -> nn.Module:
    """Return the network: tokens 1xL to states 1xLx768."""
    return _States()


def draw(shape: tuple[int, ...]) -> Tensor:
    """Return random tokens."""
    return torch.randint(0, _WORDS, shape)


class _States(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.network(input_ids=tokens, return_dict=False)[0]
        return states
