"""The operations on an NVIDIA GPU: torch tensors, kernels in Triton and CUDA C++. Needs the extra `[cuda]`."""
