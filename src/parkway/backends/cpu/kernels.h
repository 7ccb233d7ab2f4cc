// The tables of kernels, one for each instruction set that was compiled.
#pragma once
#include "abi.h"

struct pk_named {
    const char *name;
    void *function;
};

extern const pk_named pk_kernels_portable[];
#if defined(__x86_64__)
extern const pk_named pk_kernels_avx2[];
extern const pk_named pk_kernels_avx512[];
#endif
