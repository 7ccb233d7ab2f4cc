"""Rows that are drawn, and how near a kernel's must be to the exact ones."""

import torch


def drawn(device: torch.device, *shape: int, seed: int = 0) -> torch.Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=chance).to(device, torch.bfloat16)


def close(made: torch.Tensor, wanted: torch.Tensor) -> None:
    """Within one rounding to bf16, and a little for the sums in fp32."""
    torch.testing.assert_close(made.double().cpu(), wanted.cpu(), rtol=2**-8 + 2**-14, atol=1e-6)
