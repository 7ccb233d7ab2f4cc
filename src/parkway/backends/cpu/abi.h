// The C ABI between Python and the kernels: one step's numbers, one instruction of a recorded program, and the calls.
// Every struct here has its twin in library.py; PK_ABI_VERSION changes with any of them.
#pragma once
#include <stdint.h>

#define PK_ABI_VERSION 9
#define PK_MAX_TOP 20

// Activations of some rows, float or quantised to int8 per 32: value = q * d; s = d * sum(q). The quantised ones lie in
// tiles of rows [tile, block of 32, row of the tile, …]; linear.h says how many rows a tile has.
typedef struct pk_sums {
    int16_t first, all;  // of the first 16 of 32 quantised values; of all of them
} pk_sums;
typedef struct pk_rows {
    float *f;      // [rows, k]
    int8_t *q;     // [tiles, k / 32, rows of a tile, 32]
    float *d;      // [tiles, k / 32, rows of a tile]
    float *s;      // the same
    pk_sums *sum;  // the same
    int64_t k;
} pk_rows;

// One sampler of a chain, in the order in which they are applied; runner/chain.py says which numbers each has.
enum { PK_TEMPERATURE, PK_TOP_K, PK_TOP_P, PK_MIN_P, PK_TOP_N_SIGMA, PK_TYPICAL, PK_XTC, PK_MIROSTAT, PK_MIROSTAT_2 };
typedef struct pk_chain_step {
    int64_t kind;
    double a, b, c;
} pk_chain_step;

// What a row's logits become before a token is chosen: x of ids[i] is x * (x > 0 ? shrink[i] : grow[i]) + offset[i], each
// operation rounded once; then what the mask forbids (bit id % 32 of word id / 32 is 0) is -inf. What is reported is of x.
typedef struct pk_edits {
    const int32_t *ids;                   // [count], none twice
    const float *shrink, *grow, *offset;  // [count]
    int64_t count;
    const uint32_t *mask;                 // [vocabulary / 32, rounded up], or null
    const pk_chain_step *chain;           // [steps], or null: temperature, then top_k, top_p and min_p
    int64_t steps;
} pk_edits;

// How one logit row is sampled and what is reported of it.
typedef struct pk_sample {
    float temperature, top_p, min_p;
    int32_t top_k;
    int32_t target;    // token whose log-probability is asked for; -1: the sampled one
    int32_t top;       // most probable tokens to report; -1: no log-probabilities at all
    uint64_t seed;
    int32_t prompt_index, choice_index, position;
    int32_t draw;      // 1: of a token that is chosen once more, since the first one was forbidden
    pk_edits edits;
    int32_t token;     // out; -1: the edits allow none; -2: the largest logit is not finite
    float logprob;     // out
    int32_t top_ids[PK_MAX_TOP];      // out
    float top_logprobs[PK_MAX_TOP];   // out
    double surprise;   // out, of a token that a chain has chosen: in bits, among those that it left
} pk_sample;

// One step: the only thing that changes between two runs of a program.
typedef struct pk_batch {
    int64_t rows, logit_rows;
    const int32_t *tokens;      // [rows]
    const int32_t *positions;   // [rows]
    const int32_t *table_of;    // [rows] where the row's page table starts in `pages`
    const int32_t *pages;       // page tables of all chats, one after the other
    const int32_t *logit_row;   // [logit_rows] which row each logit row is
    pk_sample *samples;         // [logit_rows]
    const int32_t *slots;       // [rows] where the state of the row's chat is; null where no layer keeps states
} pk_batch;

// What the kernels see of a step. `tiles`: runs of rows of one chat that share attention's loads of K and V.
typedef struct pk_tile { int32_t row, rows; } pk_tile;
typedef struct pk_step {
    const pk_batch *batch;
    const pk_tile *tiles;
    int64_t tile_count;
    const pk_tile *runs;       // all consecutive rows of one chat, where there are slots
    int64_t run_count;
    int64_t splits;            // > 0: attention's items are (row, head, split), merged by a later instruction
    float *scratch;            // [threads, scratch_floats]
    int64_t scratch_floats;
} pk_step;

struct pk_instr;
typedef void (*pk_kernel)(const pk_step *, const struct pk_instr *, int64_t begin, int64_t end, int thread);
// One group of 16 outputs for all rows: out[row * stride + 0..15].
typedef void (*pk_linear)(const pk_rows *x, int64_t rows, const uint8_t *weights, float *out, int64_t stride);

typedef struct pk_segment {
    pk_linear kernel;
    const uint8_t *weights;
    int64_t groups;            // of 16 outputs
    int64_t group_bytes;
    float *out;
    int64_t out_stride;
    const float *bias;         // [groups * 16], or null
    const float *residual;     // same shape and stride as out, or null
} pk_segment;

#define PK_ROW_TILE 16     // most rows of a tile of int8 activations
#define PK_SPLIT 128       // positions of one attention split: a constant of the numeric contract
#define PK_PAGE 64         // tokens of a page
#define PK_SPLIT_ROWS 4    // most rows of a step whose splits may be separate items

enum { PK_FIXED = 0, PK_ROWS = 1, PK_LOGIT_ROWS = 2, PK_TILES = 3, PK_MERGES = 4, PK_RUNS = 5 };

typedef struct pk_instr {
    pk_kernel kernel;
    int32_t counts;            // what its items are: one of the above
    int32_t on_logit_rows;     // the row count that the kernel sees: rows, or logit rows
    int64_t items;             // for PK_FIXED; of each run for PK_RUNS
    int64_t n[8];
    float f[2];
    void *p[8];
    pk_segment segment[3];
} pk_instr;

#ifdef __cplusplus
extern "C" {
#endif
#define PK_API __attribute__((visibility("default")))

PK_API int pk_abi_version(void);
PK_API const char *pk_best_isa(void);                              // "amx", "avx512", "avx2" or "portable"
PK_API void *pk_kernel_named(const char *isa, const char *name);   // null: there is none
PK_API int64_t pk_packed_bytes(const char *type, int64_t rows, int64_t k);
PK_API int pk_pack(const char *type, const uint8_t *raw, int64_t rows, int64_t k, uint8_t *packed);
PK_API void *pk_allocate(int64_t bytes);                           // zeroed, page-aligned; null: no memory
PK_API void pk_release(void *memory, int64_t bytes);
PK_API void *pk_pool_new(int threads);
PK_API void pk_pool_free(void *pool);
// `tile_rows`: most rows of an attention tile; `kv_heads`: what an attention instruction has items of, for each tile.
PK_API void *pk_program_new(void *pool, const pk_instr *instructions, int64_t count, int64_t max_rows, int64_t tile_rows,
                            int64_t kv_heads, int64_t scratch_floats);
PK_API void pk_program_free(void *program);
PK_API void pk_program_run(void *program, const pk_batch *batch);
PK_API void pk_program_again(void *program, const pk_batch *batch, int64_t instruction, int64_t item);
#ifdef __cplusplus
}
#endif
