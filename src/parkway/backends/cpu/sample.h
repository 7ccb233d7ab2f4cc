// The sampler's arithmetic on one row of logits: the largest, the log of the sum of exponentials, the weights to draw from.
#pragma once
#include "attention.h"
#include "choose.h"

namespace {

INLINE float largest_of(const float *x, int64_t count) {  // count is a multiple of 16: packed outputs are padded
    F top = all(-INFINITY);
    for (int64_t i = 0; i < count; i += 16) top = max(load(x + i), top);
    return largest(top);
}

INLINE float log_sum_exp(const float *x, int64_t count, float top) {
    F total = all(0.f);
    for (int64_t i = 0; i < count; i += 16) total = add(total, exp(sub(load(x + i), all(top))));
    return top + (float)log((double)sum(total));
}

INLINE int32_t first_equal(const float *x, int64_t count, float value) {
    for (int64_t i = 0; i < count; i++)
        if (x[i] == value) return (int32_t)i;
    return 0;  // only where every logit is NaN
}

INLINE void report(pk_sample *how, const float *logits, int64_t vocabulary, int64_t padded, float top) {
    if (how->top > vocabulary) how->top = (int32_t)vocabulary;
    const float normaliser = log_sum_exp(logits, padded, top);
    how->logprob = logits[how->target >= 0 ? how->target : how->token] - normaliser;
    if (how->top > 0) pk_most_probable(how, logits, vocabulary);
    for (int i = 0; i < how->top; i++) how->top_logprobs[i] = logits[how->top_ids[i]] - normaliser;
}

// p[0]: logits [logit rows, n1], of which n0 are real; destroyed. Items: logit rows.
void sample(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int thread) {
    const int64_t vocabulary = in->n[0], padded = in->n[1];
    for (int64_t j = begin; j < end; j++) {
        pk_sample *how = step->batch->samples + j;
        float *logits = (float *)in->p[0] + j * padded;
        for (int64_t i = vocabulary; i < padded; i++) logits[i] = -INFINITY;
        const float top = largest_of(logits, padded);
        how->token = how->target >= 0 ? how->target : how->temperature > 0 ? -1 : first_equal(logits, vocabulary, top);
        if (how->token < 0) {  // weights go beside the logits, which the report still reads
            float *weights = step->scratch + thread * step->scratch_floats;
            const F inverse = all(1.f / how->temperature);
            for (int64_t i = 0; i < padded; i += 16)
                store(weights + i, exp(mul(sub(load(logits + i), all(top)), inverse)));
            how->token = pk_choose(how, weights, vocabulary, (int32_t *)(weights + padded));
        }
        if (how->top >= 0) report(how, logits, vocabulary, padded, top);
    }
}

}  // namespace
