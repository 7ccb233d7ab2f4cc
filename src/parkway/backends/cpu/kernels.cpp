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

#define PK_TYPE(name, W)                                            \
    {"linear_int8_" name, (void *)linear_group<Int8<W>>},           \
    {"linear_f32_" name, (void *)linear_group<Float<W>>},           \
    {"embed_" name, (void *)embed<W>}
#define PK_FLOAT_TYPE(name, W)                                      \
    {"linear_f32_" name, (void *)linear_group<Float<W>>},           \
    {"embed_" name, (void *)embed<W>}

extern const pk_named PK_TABLE(PK_ISA)[] = {
    PK_TYPE("Q4_0", Q4_0),
    PK_TYPE("Q4_1", Q4_1),
    PK_TYPE("Q5_0", Q5_0),
    PK_TYPE("Q5_1", Q5_1),
    PK_TYPE("Q8_0", Q8_0),
    PK_TYPE("Q2_K", Q2_K),
    PK_TYPE("Q3_K", Q3_K),
    PK_TYPE("Q4_K", Q4_K),
    PK_TYPE("Q5_K", Q5_K),
    PK_TYPE("Q6_K", Q6_K),
    PK_TYPE("IQ4_NL", IQ4_NL),
    PK_TYPE("IQ4_XS", IQ4_XS),
    PK_TYPE("MXFP4", MXFP4),
    PK_FLOAT_TYPE("F16", F16),
    PK_FLOAT_TYPE("BF16", BF16),
    PK_FLOAT_TYPE("F32", F32),
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
#define PK_TILED(name, W) {"linear_int8_" name, (void *)tiled_group<W>}

// What the matrix unit does otherwise; all else is as without it.
extern const pk_named pk_kernels_amx[] = {
    PK_TILED("Q4_0", Q4_0),
    PK_TILED("Q4_1", Q4_1),
    PK_TILED("Q5_0", Q5_0),
    PK_TILED("Q5_1", Q5_1),
    PK_TILED("Q8_0", Q8_0),
    PK_TILED("Q2_K", Q2_K),
    PK_TILED("Q3_K", Q3_K),
    PK_TILED("Q4_K", Q4_K),
    PK_TILED("Q5_K", Q5_K),
    PK_TILED("Q6_K", Q6_K),
    PK_TILED("IQ4_NL", IQ4_NL),
    PK_TILED("IQ4_XS", IQ4_XS),
    PK_TILED("MXFP4", MXFP4),
    {nullptr, nullptr},
};
#endif
