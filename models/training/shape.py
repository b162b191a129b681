"""What the shapes of both families have in common: sizes, and how many tokens an expert takes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    vocab: int = 2048
    hidden: int = 128
    heads: int = 4
    head: int = 32
    query_latent: int = 64
    latent: int = 64
    dense: int = 256
    experts: int = 8
    chosen: int = 2
    expert: int = 64
    eps: float = 1e-5
    tile: int = 16
    capacity: float = 1.5  # rows of an expert over its fair share of the choices; training only

    def exact(self):
        """The same model without a limit on an expert's tokens: what a checkpoint's users compute."""
        return dataclasses.replace(self, capacity=self.experts / self.chosen)

    def routers(self):
        """Layers with experts, the draft layer included."""
        return self.layers - self.dense_layers + 1
