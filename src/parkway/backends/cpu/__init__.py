"""The CPU backend: NumPy arrays outside, C++ with explicit SIMD inside. No torch."""
