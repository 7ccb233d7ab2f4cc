// The tables of kernels, one for each instruction set that was compiled.
#pragma once
#include "abi.h"

struct pk_named {
    const char *name;
    void *function;
};

extern __thread uint64_t pk_steps_of_thread;  // that the thread has begun: what it set up for one is to be set up for the next

extern const pk_named pk_kernels_portable[];
#if defined(__x86_64__)
#if defined(__linux__) && __has_include(<amxint8intrin.h>)
#define PK_AMX  // the compiler knows the matrix unit's instructions
#endif
extern const pk_named pk_kernels_avx2[];
extern const pk_named pk_kernels_avx512[];
#if defined(PK_AMX)
extern const pk_named pk_kernels_amx[];  // what differs from those
#endif
#endif
