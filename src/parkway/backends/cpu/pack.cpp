// From the file's rows of blocks to packed groups of 16 rows, without an unquantised copy; and the C entry points for
// kernels by name and for memory.
#include <sys/mman.h>

#include <cstring>

#include "kernels.h"
#if defined(PK_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include "pack_blocks.h"

namespace {

struct Type {
    const char *name;
    int64_t columns;                  // that the file keeps together
    int64_t raw_bytes, packed_bytes;  // of so many columns of one row; of 32 columns of 16 rows
    void (*pack)(const uint8_t *raw, int64_t row, uint8_t *packed);
};

const Type TYPES[] = {
    {"Q4_0", 32, 18, 288, pack_q4_0},      {"Q4_1", 32, 20, 320, pack_q4_1},        {"Q5_0", 32, 22, 352, pack_q5_0},
    {"Q5_1", 32, 24, 384, pack_q5_1},      {"Q8_0", 32, 34, 544, pack_q8_0},        {"Q2_K", 256, 84, 224, pack_q2_k},
    {"Q3_K", 256, 110, 256, pack_q3_k},    {"Q4_K", 256, 144, 352, pack_q4_k},      {"Q5_K", 256, 176, 416, pack_q5_k},
    {"Q6_K", 256, 210, 448, pack_q6_k},    {"IQ4_NL", 32, 18, 288, pack_q4_0},      {"IQ4_XS", 256, 136, 304, pack_iq4_xs},
    {"MXFP4", 32, 17, 272, pack_mxfp4},    {"F16", 32, 64, 1024, pack_floats<2>},   {"BF16", 32, 64, 1024, pack_floats<2>},
    {"F32", 32, 128, 2048, pack_floats<4>},
};

const Type *type_named(const char *name) {
    for (const Type &type : TYPES)
        if (!strcmp(type.name, name)) return &type;
    return nullptr;
}

}  // namespace

int64_t pk_packed_bytes(const char *name, int64_t rows, int64_t k) {
    const Type *type = type_named(name);
    return type && k % type->columns == 0 ? (rows + GROUP - 1) / GROUP * (k / COLUMNS) * type->packed_bytes : -1;
}

// `packed` is zeroed memory: rows that fill up the last group are never written.
int pk_pack(const char *name, const uint8_t *raw, int64_t rows, int64_t k, uint8_t *packed) {
    const Type *type = type_named(name);
    if (!type || k % type->columns) return -1;
    const int64_t runs = k / type->columns, run_bytes = type->columns / COLUMNS * type->packed_bytes;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < runs; i++)
            type->pack(raw + (row * runs + i) * type->raw_bytes, row % GROUP, packed + (row / GROUP * runs + i) * run_bytes);
    return 0;
}

int pk_abi_version(void) { return PK_ABI_VERSION; }

namespace {

const pk_named *find(const pk_named *table, const char *name) {
    while (table->name && strcmp(table->name, name)) table++;
    return table;
}

#if defined(PK_AMX)
// Whether there is a matrix unit for bytes and the system lets this process use its registers, for which it has to be asked.
bool may_use_tiles() {
    constexpr unsigned TILES = 1u << 24, OF_BYTES = 1u << 25;
    constexpr long ASK = 0x1023, TILE_DATA = 18;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & TILES) || !(d & OF_BYTES)) return false;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

#else
bool may_use_tiles() { return false; }
#endif

}  // namespace

const char *pk_best_isa(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return may_use_tiles() ? "amx" : "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return "avx2";
#endif
    return "portable";
}

void *pk_kernel_named(const char *isa, const char *name) {
    const pk_named *table = pk_kernels_portable;
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512") || !strcmp(isa, "amx")) table = pk_kernels_avx512;
    if (!strcmp(isa, "avx2")) table = pk_kernels_avx2;
#endif
#if defined(PK_AMX)
    if (!strcmp(isa, "amx"))
        if (void *tiled = find(pk_kernels_amx, name)->function) return tiled;
#endif
    return find(table, name)->function;
}

// Large pages where the system gives them: reading all weights once a token is bound by memory, and so by its page table.
void *pk_allocate(int64_t bytes) {
    void *memory = mmap(nullptr, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

void pk_release(void *memory, int64_t bytes) { munmap(memory, (size_t)bytes); }
