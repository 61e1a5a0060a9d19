"""What becomes of the last states: a distribution over the vocabulary, a class, a tag per token."""

import torch
from torch import Tensor, nn

from regard.nn.mlp import ACTIVATIONS
from regard.nn.norm import LayerNorm
from regard.nn.see import Part, see


class Pooler(Part):
    """tanh(W x_first + b): the first token's state as a vector for the whole text (BERT)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d, d)

    def forward(self, X: Tensor) -> Tensor:
        return see("out", torch.tanh(see("dense", self.dense(X[:, 0]))))  # (B, d)


class MaskedHead(Part):
    """dense → activation → norm: BERT's transform, before the unembedding."""

    def __init__(self, d: int, activation: str, eps: float) -> None:
        super().__init__()
        self.dense, self.norm, self.activation = nn.Linear(d, d), LayerNorm(d, eps), ACTIVATIONS[activation]

    def forward(self, X: Tensor) -> Tensor:
        return self.norm(see("act", self.activation(see("dense", self.dense(X)))))


class Classifier(Part):
    """A linear map to the classes, of one vector per text or of every token's."""

    def __init__(self, d: int, n_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.out, self.dropout = nn.Linear(d, n_labels), nn.Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:
        return self.out(self.dropout(X))


class DenseClassifier(Part):
    """tanh(W x + b), then a linear map to the classes (RoBERTa, BART)."""

    def __init__(self, d: int, n_labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dense, self.out, self.dropout = nn.Linear(d, d), nn.Linear(d, n_labels), nn.Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:
        act = see("act", torch.tanh(see("dense", self.dense(self.dropout(X)))))
        return self.out(self.dropout(act))
