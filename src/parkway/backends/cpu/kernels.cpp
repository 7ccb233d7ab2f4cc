// Compiled once for each instruction set, with PK_ISA its name; exports one table of kernels by name.
#include "kernels.h"

#include "sample.h"

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
    PK_TYPE("Q8_0", Q8_0),
    PK_TYPE("Q4_K", Q4_K),
    PK_TYPE("Q6_K", Q6_K),
    PK_FLOAT_TYPE("F16", F16),
    PK_FLOAT_TYPE("BF16", BF16),
    PK_FLOAT_TYPE("F32", F32),
    {"linear", (void *)linear},
    {"gated", (void *)gated},
    {"quantise", (void *)quantise},
    {"rms_norm", (void *)rms_norm},
    {"take", (void *)take},
    {"rope_and_write_f16", (void *)rope_and_write<uint16_t>},
    {"rope_and_write_f32", (void *)rope_and_write<float>},
    {"attention_f16", (void *)attention<uint16_t>},
    {"attention_f32", (void *)attention<float>},
    {"merge_splits", (void *)merge_splits},
    {"sample", (void *)sample},
    {nullptr, nullptr},
};
