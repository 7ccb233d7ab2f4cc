// The sampler's arithmetic on one row of logits: the largest, the log of the sum of exponentials, the weights to draw from.
#pragma once
#include <cfloat>

#include "attention.h"
#include "chain.h"
#include "choose.h"

namespace {

constexpr int32_t NOT_FINITE = -2;  // in place of a token; -1: edits allow none

struct Top {
    float value;
    int64_t from;  // where the run of logits begins that has it first
};

// Makes what is no number -inf; returns the largest. count is a multiple of 16: packed outputs are padded. Writes nothing
// where all are numbers: the logits of many rows are more than caches hold.
INLINE Top numbers_of(float *x, int64_t count) {
    constexpr int64_t RUN = 1024;
    Top found = {-INFINITY, 0};
    for (int64_t first = 0; first < count; first += RUN) {
        const int64_t end = first + RUN < count ? first + RUN : count;
        F top = all(-INFINITY);
        for (int64_t i = first; i < end; i += 16) {
            const F read = load(x + i), numbers = max(read, all(-INFINITY));
            if (any_nan(read)) store(x + i, numbers);
            top = max(numbers, top);
        }
        const float here = largest(top);
        if (here > found.value) found = {here, first};
    }
    return found;
}

INLINE float log_sum_exp(const float *x, int64_t count, float top) {
    F total = all(0.f);
    for (int64_t i = 0; i < count; i += 16) total = add(total, exp(sub(load(x + i), all(top))));
    return top + (float)log((double)sum(total));
}

INLINE int32_t first_equal(const float *x, int64_t count, Top top) {
    for (int64_t i = top.from; i < count; i++)
        if (x[i] == top.value) return (int32_t)i;
    return 0;
}

INLINE void report(pk_sample *how, const float *logits, int64_t vocabulary, int64_t padded, float top) {
    if (how->top > vocabulary) how->top = (int32_t)vocabulary;
    const float normaliser = log_sum_exp(logits, padded, top);
    how->logprob = logits[how->target >= 0 ? how->target : how->token] - normaliser;
    if (how->top > 0) pk_most_probable(how, logits, vocabulary);
    for (int i = 0; i < how->top; i++) how->top_logprobs[i] = logits[how->top_ids[i]] - normaliser;
}

// The logits that a token is chosen from, into `edited` [padded]. What an edit makes NaN counts as -inf, and what it makes
// infinite as the largest number.
INLINE void edit(const pk_edits *edits, const float *logits, int64_t vocabulary, int64_t padded, float *edited) {
    memcpy(edited, logits, padded * sizeof(float));
    for (int64_t i = 0; i < edits->count; i++) {
        float *const x = edited + edits->ids[i];
        const float y = *x * (*x > 0 ? edits->shrink[i] : edits->grow[i]) + edits->offset[i];
        *x = y == y ? (y < FLT_MAX ? y : FLT_MAX) : -INFINITY;
    }
    if (!edits->mask) return;
    for (int64_t first = 0; first < vocabulary; first += 32) {
        const uint32_t allowed = edits->mask[first / 32];
        const int64_t count = vocabulary - first < 32 ? vocabulary - first : 32;
        if (allowed != UINT32_MAX)
            for (int64_t i = 0; i < count; i++)
                if (!(allowed >> i & 1)) edited[first + i] = -INFINITY;
    }
}

// The token of a row with that largest logit. Weights go to scratch, where the logits may be already. An impossible
// token of an edited row weighs nothing; exp alone would leave it the weight of a very improbable one.
INLINE int32_t choose(const pk_sample *how, const float *logits, int64_t vocabulary, int64_t padded, Top top, bool edited, float *scratch) {
    if (edited && top.value == -INFINITY) return -1;
    if (how->temperature <= 0) return first_equal(logits, vocabulary, top);
    const F inverse = all(1.f / how->temperature);
    for (int64_t i = 0; i < padded; i += 16) {
        float x[16];
        store(x, load(logits + i));
        store(scratch + i, exp(mul(sub(load(x), all(top.value)), inverse)));
        for (int lane = 0; edited && lane < 16; lane++)
            if (!(x[lane] > -INFINITY)) scratch[i + lane] = 0;
    }
    return pk_choose(how, scratch, vocabulary, (int32_t *)(scratch + padded));
}

// p[0]: logits [logit rows, n1], of which n0 are real. Items: logit rows.
void sample(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int thread) {
    const int64_t vocabulary = in->n[0], padded = in->n[1];
    float *scratch = step->scratch + thread * step->scratch_floats;
    for (int64_t j = begin; j < end; j++) {
        pk_sample *how = step->batch->samples + j;
        float *logits = (float *)in->p[0] + j * padded;
        for (int64_t i = vocabulary; i < padded; i++) logits[i] = -INFINITY;
        const Top top = numbers_of(logits, padded);
        if (!(top.value > -INFINITY && top.value < INFINITY)) {
            how->token = NOT_FINITE;
            continue;
        }
        const bool edited = how->edits.count || how->edits.mask;
        if (how->target < 0 && edited) edit(&how->edits, logits, vocabulary, padded, scratch);
        if (how->target >= 0) {
            how->token = how->target;
        } else if (how->edits.chain) {
            how->token = pk_walk(how, edited ? scratch : logits, vocabulary, (uint64_t *)(scratch + padded));
        } else if (edited) {
            how->token = choose(how, scratch, vocabulary, padded, numbers_of(scratch, padded), true, scratch);
        } else {
            how->token = choose(how, logits, vocabulary, padded, top, false, scratch);
        }
        if (how->top >= 0 && how->token >= 0) report(how, logits, vocabulary, padded, top.value);
    }
}

}  // namespace
