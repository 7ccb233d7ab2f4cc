// From the file's rows of blocks to packed groups of 16 rows, without an unquantised copy; and the C entry points for
// kernels by name and for memory. The layouts are read in weights.h.
#include <sys/mman.h>

#include <cstring>

#include "kernels.h"

namespace {

constexpr int64_t GROUP = 16, COLUMNS = 32;

uint16_t *halves(uint8_t *p, int64_t at) { return (uint16_t *)(p + at); }

// The low 4 bits of 32 columns: the packed block keeps quads of columns 2i and 2i + 1 in one byte.
void pack_columns(const uint8_t q[32], int64_t row, uint8_t *packed) {
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 4; t++) packed[i * 64 + row * 4 + t] = (uint8_t)((q[8 * i + t] & 15) | q[8 * i + 4 + t] << 4);
}

// 32 4-bit values: the file keeps column i and i + 16 in one byte.
void pack_nibbles(const uint8_t *raw, int64_t row, uint8_t *packed) {
    uint8_t q[32];
    for (int i = 0; i < 16; i++) {
        q[i] = raw[i] & 15;
        q[16 + i] = raw[i] >> 4;
    }
    pack_columns(q, row, packed);
}

void pack_q4_0(const uint8_t *raw, int64_t row, uint8_t *packed) {
    memcpy(halves(packed, 256) + row, raw, 2);
    pack_nibbles(raw + 2, row, packed);
}

void pack_q4_1(const uint8_t *raw, int64_t row, uint8_t *packed) {
    memcpy(halves(packed, 256) + row, raw, 2);
    memcpy(halves(packed, 288) + row, raw + 2, 2);
    pack_nibbles(raw + 4, row, packed);
}

void pack_q8_0(const uint8_t *raw, int64_t row, uint8_t *packed) {
    memcpy(halves(packed, 512) + row, raw, 2);
    for (int j = 0; j < 8; j++)
        for (int t = 0; t < 4; t++) packed[j * 64 + row * 4 + t] = (uint8_t)((int8_t)raw[2 + 4 * j + t] + 128);
}

// 256 columns in eight blocks: d, dmin, then 6-bit scales and minima whose upper two bits lie apart for blocks 4 to 7,
// then 64 columns in each 32 bytes, those of the even block in the low halves.
void pack_q4_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    const uint8_t *scales = raw + 4, *low = raw + 16;
    for (int b = 0; b < 8; b++, packed += 352) {
        uint8_t q[32];
        for (int i = 0; i < 32; i++) q[i] = low[b / 2 * 32 + i] >> 4 * (b % 2);
        pack_columns(q, row, packed);
        memcpy(halves(packed, 256) + row, raw, 2);
        memcpy(halves(packed, 288) + row, raw + 2, 2);
        const int scale = b < 4 ? scales[b] & 63 : (scales[b + 4] & 15) | scales[b - 4] >> 6 << 4;
        const int least = b < 4 ? scales[b + 4] & 63 : scales[b + 4] >> 4 | scales[b] >> 6 << 4;
        packed[320 + row] = (uint8_t)scale;
        packed[336 + row] = (uint8_t)least;
    }
}

// 256 columns in eight blocks: the low 4 bits of 128 columns in 64 bytes, their high 2 bits in 32, then a signed scale
// for each 16 columns, then d.
void pack_q6_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int b = 0; b < 8; b++, packed += 448) {
        const uint8_t *low = raw + b / 4 * 64 + b % 2 * 32, *high = raw + 128 + b / 4 * 32;
        uint8_t q[32];
        for (int i = 0; i < 32; i++) q[i] = low[i] >> (b % 4 < 2 ? 0 : 4);
        pack_columns(q, row, packed);
        for (int i = 0; i < 32; i++) {
            const int bits = high[i] >> 2 * (b % 4) & 3;
            packed[256 + i / 16 * 64 + row * 4 + i % 4] |= (uint8_t)(bits << 2 * (i / 4 % 4));
        }
        memcpy(halves(packed, 384) + row, raw + 208, 2);
        for (int half = 0; half < 2; half++) packed[416 + 16 * half + row] = raw[192 + 2 * b + half];
    }
}

template <int BYTES> void pack_floats(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int64_t c = 0; c < COLUMNS; c++) memcpy(packed + (c * GROUP + row) * BYTES, raw + c * BYTES, BYTES);
}

struct Type {
    const char *name;
    int64_t columns;                  // that the file keeps together
    int64_t raw_bytes, packed_bytes;  // of so many columns of one row; of 32 columns of 16 rows
    void (*pack)(const uint8_t *raw, int64_t row, uint8_t *packed);
};

const Type TYPES[] = {
    {"Q4_0", 32, 18, 288, pack_q4_0},      {"Q4_1", 32, 20, 320, pack_q4_1},      {"Q8_0", 32, 34, 544, pack_q8_0},
    {"Q4_K", 256, 144, 352, pack_q4_k},    {"Q6_K", 256, 210, 448, pack_q6_k},    {"F16", 32, 64, 1024, pack_floats<2>},
    {"BF16", 32, 64, 1024, pack_floats<2>}, {"F32", 32, 128, 2048, pack_floats<4>},
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

const char *pk_best_isa(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return "avx2";
#endif
    return "portable";
}

void *pk_kernel_named(const char *isa, const char *name) {
    const pk_named *table = pk_kernels_portable;
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512")) table = pk_kernels_avx512;
    if (!strcmp(isa, "avx2")) table = pk_kernels_avx2;
#endif
    for (; table->name; table++)
        if (!strcmp(table->name, name)) return table->function;
    return nullptr;
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
