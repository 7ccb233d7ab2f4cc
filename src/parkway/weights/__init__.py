"""Files on disk → named tensors, still in the file's own types. Knows nothing about models or devices."""
