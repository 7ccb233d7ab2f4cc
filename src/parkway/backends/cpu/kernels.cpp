// Compiled once for each instruction set, with PK_ISA its name; exports one table of kernels by name.
#include "kernels.h"

#include "pointwise.h"
#include "delta.h"
#include "experts.h"
#include "sample.h"
#if defined(PK_AMX) && defined(PK_AVX512)
#include "tiles.h"
#endif

#define PK_PASTE(a, b) a##b
#define PK_TABLE(isa) PK_PASTE(pk_kernels_, isa)

// Types that are multiplied as bytes, each given to X.
#define PK_INT8_TYPES(X)                                                                              \
    X(Q4_0), X(Q4_1), X(Q5_0), X(Q5_1), X(Q8_0), X(Q2_K), X(Q3_K), X(Q4_K), X(Q5_K), X(Q6_K), X(IQ4_NL), \
    X(IQ4_XS), X(MXFP4)
#define PK_FLOAT_TYPE(W) {"linear_f32_" #W, (void *)linear_group<Float<W>>}, {"embed_" #W, (void *)embed<W>}
#define PK_TYPE(W) {"linear_int8_" #W, (void *)linear_group<Int8<W>>}, PK_FLOAT_TYPE(W)

extern const pk_named PK_TABLE(PK_ISA)[] = {
    PK_INT8_TYPES(PK_TYPE),
    PK_FLOAT_TYPE(F16),
    PK_FLOAT_TYPE(BF16),
    PK_FLOAT_TYPE(F32),
    {"linear", (void *)linear},
    {"gated", (void *)gated},
    {"quantise", (void *)quantise},
    {"rms_norm", (void *)rms_norm},
    {"norm_add", (void *)norm_add},
    {"add", (void *)add_rows},
    {"sigmoid_gate", (void *)sigmoid_gate},
    {"soft_cap", (void *)soft_cap},
    {"take", (void *)take},
    {"rope_and_write_f16", (void *)rope_and_write<uint16_t>},
    {"rope_and_write_f32", (void *)rope_and_write<float>},
    {"attention_f16", (void *)attention<uint16_t>},
    {"attention_f32", (void *)attention<float>},
    {"merge_splits", (void *)merge_splits},
    {"delta_inputs", (void *)delta_inputs},
    {"delta_net", (void *)delta_net},
    {"keep_inputs", (void *)keep_inputs},
    {"gated_norm", (void *)gated_norm},
    {"route", (void *)route},
    {"sort_rows", (void *)sort_rows},
    {"spread", (void *)spread},
    {"experts_gated", (void *)experts_gated},
    {"quantise_hidden", (void *)quantise_hidden},
    {"experts_down", (void *)experts_down},
    {"combine", (void *)combine},
    {"sample", (void *)sample},
    {nullptr, nullptr},
};

#if defined(PK_AMX) && defined(PK_AVX512)
#define PK_TILED(W) {"linear_int8_" #W, (void *)tiled_group<W>}

// What the matrix unit does otherwise; all else is as without it.
extern const pk_named pk_kernels_amx[] = {PK_INT8_TYPES(PK_TILED), {nullptr, nullptr}};
#endif
