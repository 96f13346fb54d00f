/* The paper's CNN on one image, forwards and backwards:

     image -> 3x3 convolution, 32 channels -> 2x2 max-pooling -> ReLU
           -> 3x3 convolution, 64 channels -> 2x2 max-pooling -> ReLU
           -> hidden units -> ReLU -> classes -> cross-entropy

   Images go through one at a time, so that everything between the layers stays in the CPU's caches. Pooling is done as
   soon as its four values are known, and a gradient goes back only through the one value in four that won. What the
   first layer's ReLU has cut off adds nothing to the second layer and is left out of its sums. Cells that
   see nothing but an even background are alike in all images of a call, and computed once.

   This file is included once per instruction set by paper_cnn.c, which sets
     NAME          makes a function's name
     LANES         floats in a vector
     TILE_CELLS    pooling cells of the second layer computed together
     TILE_VECTORS  vectors of its channels computed together
   so that sums stay in registers. Maps of the first layer lie vector by vector of their channels, so that a pass over
   one vector's plane stays in the first cache. Every sum adds the same numbers in the same order whatever these are: all
   instruction sets give the same bits. */

#define VECTORS1 (32 / LANES) /* per pixel of the first layer */
#define VECTORS2 (64 / LANES) /* and of the second */
#define vector NAME(vector)
#define lanes NAME(lanes)
#define loose NAME(loose)
typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int lanes __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4))); /* in memory that is not aligned */

/* What differs from one instruction set to the next outside of this file. */
static const struct layout NAME(layout) = {LANES, TILE_VECTORS * LANES};

/* The lanes that are true, a bit for each. */
static ALWAYS_INLINE uint32_t NAME(bits)(lanes truth) {
#if defined(__x86_64__) && LANES == 16 && defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)truth);
#elif defined(__x86_64__) && LANES == 8
    return (uint32_t)_mm256_movemask_ps((__m256)truth);
#else
    return vaddvq_u32((uint32x4_t)(truth & (lanes){1, 2, 4, 8}));
#endif
}

/* The four values of a pooling cell down to their maximum, after ReLU, and the first to attain it. NaN stays NaN.
   Returns which are not cut off. */
static ALWAYS_INLINE lanes NAME(pool)(const vector value[4], float *maximum, int32_t *winner) {
    vector best = value[0];
    lanes who = {0};
    for (int p = 1; p < 4; p++) {
        lanes larger = (value[p] > best) | (value[p] != value[p]);
        best = (vector)(((lanes)value[p] & larger) | ((lanes)best & ~larger));
        who = (larger & p) | (~larger & who);
    }
    lanes alive = ~(best <= 0.0f);
    *(vector *)maximum = (vector)((lanes)best & alive);
    *(lanes *)winner = (alive & who) | (~alive & DEAD);
    return alive;
}

/* Which pixels of an image differ from the background, the first pixel of the first image in each channel: a bit for each
   column, three places further on. */
static void NAME(look)(const struct network *net, struct activations *a) {
    const long width = net->width + 2, plane = (net->height + 2) * width;
    memset(a->seen, 0, net->height * sizeof(uint64_t));
    for (long channel = 0; channel < net->channels; channel++) {
        const lanes background = a->background[channel] + (lanes){0};
        const float *pixel = a->image + channel * plane + width + 1;
        for (long row = 0; row < net->height; row++, pixel += width) {
            uint64_t differ = 0;
            for (long column = 0; column < net->width; column += LANES) {
                const lanes own = (lanes) * (const loose *)(pixel + column);
                differ |= (uint64_t)NAME(bits)(own != background) << column;
            }
            a->seen[row] |= (differ & (((uint64_t)1 << net->width) - 1)) << 3;
        }
    }
}

/* First convolution, pooling and ReLU of one pooling cell, from its first pixel. Returns the channels that are not cut
   off. */
static ALWAYS_INLINE uint32_t NAME(first_cell)(
    const struct network *net, const struct weights *w, const float *corner, float *map, int32_t *winner
) {
    const long width = net->width + 2, plane = (net->height + 2) * width, plane1 = LANES * net->pixels1;
    uint32_t live = 0;
    for (int v = 0; v < VECTORS1; v += 2) {
        const vector *weight = (const vector *)w->conv1 + v, *bias = (const vector *)w->bias1 + v;
        vector value[2][4];
        for (int p = 0; p < 4; p++) {
            value[0][p] = bias[0];
            value[1][p] = bias[1];
        }
        for (long channel = 0; channel < net->channels; channel++)
#pragma GCC unroll 9
            for (int tap = 0; tap < 9; tap++, weight += VECTORS1) {
                const float *pixel = corner + channel * plane + tap / 3 * width + tap % 3;
                for (int p = 0; p < 4; p++) {
                    const float x = pixel[p / 2 * width + p % 2];
                    value[0][p] += weight[0] * x;
                    value[1][p] += weight[1] * x;
                }
            }
        for (int i = v; i < v + 2; i++) {
            const lanes alive = NAME(pool)(value[i - v], map + i * plane1, winner + i * LANES);
            live |= NAME(bits)(alive) << i * LANES;
        }
    }
    return live;
}

/* First convolution, pooling and ReLU. Cells whose like has been computed before are copied from there. */
static void NAME(first_layer)(const struct network *net, const struct weights *w, struct activations *a) {
    const long width = net->width + 2, plane1 = LANES * net->pixels1;
    if (a->finds_blank)
        NAME(look)(net, a);
    for (long row = 0; row < net->height1; row++) {
        const uint64_t seen = seen_in(net, a, 2 * row - 1, 2 * row + 3);
        for (long column = 0; column < net->width1; column++) {
            const long at = (row + 1) * (net->width1 + 2) + column + 1;
            float *map = a->map1 + LANES * at;
            int32_t *winner = a->winner1 + 32 * (row * net->width1 + column);
            const int is_blank = a->finds_blank && !(seen >> (2 * column + 2) & 0xf);
            struct blank1 *kind = a->blank1 + kind_of(row, net->height1, column, net->width1);
            if (is_blank && kind->is_known) {
                for (int v = 0; v < VECTORS1; v++) {
                    *(vector *)(map + v * plane1) = ((const vector *)kind->map)[v];
                    ((lanes *)winner)[v] = ((const lanes *)kind->winner)[v];
                }
                a->live1[at] = kind->live;
                continue;
            }
            a->live1[at] = NAME(first_cell)(net, w, a->image + 2 * row * width + 2 * column, map, winner);
            if (is_blank) {
                for (int v = 0; v < VECTORS1; v++)
                    ((vector *)kind->map)[v] = *(const vector *)(map + v * plane1);
                memcpy(kind->winner, winner, sizeof kind->winner);
                kind->live = a->live1[at];
                kind->is_known = 1;
            }
        }
    }
}

/* What the second layer's sums over `cells` pooling cells are made of, in their order: 32 * tap + channel wherever one of
   the values below these cells is not zero. If a weight is not finite, everywhere. Returns where the list ends. */
static ALWAYS_INLINE uint16_t *NAME(list_sources)(
    const struct network *net, const struct weights *w, const struct activations *a, const int32_t *cell,
    const int cells, uint16_t *source
) {
    const long width = net->width1 + 2;
    for (int tap = 0; tap < 9; tap++) {
        uint32_t channels = w->finite ? 0 : ~0u;
        for (int c = 0; c < cells; c++) {
            const uint32_t *live = a->live1 + a->corner2[cell[c]] + tap / 3 * width + tap % 3;
            channels |= live[0] | live[1] | live[width] | live[width + 1];
        }
#pragma GCC unroll 4
        for (int first = 0; first < 32; first += 8) {
            const uint8_t byte = (uint8_t)(channels >> first);
            const shorts8 some = set_bits[byte] + (uint16_t)(32 * tap + first);
            memcpy(source, &some, sizeof some);
            source += __builtin_popcount(byte);
        }
    }
    return source;
}

/* Second convolution, pooling and ReLU for `cells` of the pooling cells to be computed, from the one with this number,
   and one tile of `vectors` vectors of channels. */
static ALWAYS_INLINE void NAME(second_tile)(
    const struct network *net, const struct weights *w, struct activations *a, long number, int tile, const int cells,
    const int vectors
) {
    const int32_t *cell = a->todo2 + number;
    const float *row[TILE_CELLS][2];
    vector value[TILE_CELLS][TILE_VECTORS][4];
    for (int c = 0; c < cells; c++) {
        row[c][0] = a->map1 + LANES * a->corner2[cell[c]];
        row[c][1] = row[c][0] + LANES * (net->width1 + 2);
        for (int v = 0; v < vectors; v++)
            for (int p = 0; p < 4; p++)
                value[c][v][p] = ((const vector *)w->bias2)[tile * TILE_VECTORS + v];
    }
    const vector *weights = (const vector *)w->conv2 + tile * 288 * TILE_VECTORS;
    const int32_t *offset = a->source_offset;
    const uint16_t *end = a->source_end[number];
#pragma GCC unroll 2
    for (const uint16_t *source = a->source + 288 * number; source < end; source++) {
        const vector *weight = weights + (size_t)*source * (size_t)vectors;
        const long at = offset[*source];
        for (int c = 0; c < cells; c++)
            for (int p = 0; p < 4; p++) {
                const float x = row[c][p / 2][at + p % 2 * LANES];
                for (int v = 0; v < vectors; v++)
                    value[c][v][p] += weight[v] * x;
            }
    }
    for (int c = 0; c < cells; c++)
        for (int v = 0; v < vectors; v++) {
            const long at = 64 * cell[c] + (tile * TILE_VECTORS + v) * LANES;
            NAME(pool)(value[c][v], a->map2 + at, a->winner2 + at);
        }
}

static ALWAYS_INLINE void NAME(second_tiles)(
    const struct network *net, const struct weights *w, struct activations *a, long count, int tile, const int vectors
) {
    long number = 0;
    for (; number + TILE_CELLS <= count; number += TILE_CELLS)
        NAME(second_tile)(net, w, a, number, tile, TILE_CELLS, vectors);
    for (; number < count; number++)
        NAME(second_tile)(net, w, a, number, tile, 1, vectors);
}

/* Second convolution, pooling and ReLU; blank cells as in the first layer. */
static void NAME(second_layer)(const struct network *net, const struct weights *w, struct activations *a) {
    int32_t count = 0, number = 0;
    struct blank2 *new_kind[BLANK_KINDS];
    int32_t new_cell[BLANK_KINDS], num_new = 0;
    for (long row = 0, cell = 0; row < net->height2; row++) {
        const uint64_t seen = seen_in(net, a, 4 * row - 3, 4 * row + 7);
        for (long column = 0; column < net->width2; column++, cell++) {
            struct blank2 *kind = a->blank2 + kind_of(row, net->height2, column, net->width2);
            if (a->finds_blank && !(seen >> 4 * column & 0x3ff)) {
                if (kind->is_known == 2) {
                    memcpy(a->map2 + 64 * cell, kind->map, sizeof kind->map);
                    memcpy(a->winner2 + 64 * cell, kind->winner, sizeof kind->winner);
                    continue;
                }
                if (!kind->is_known) { /* the first of its kind: known when all of its channels are */
                    kind->is_known = 1;
                    new_kind[num_new] = kind;
                    new_cell[num_new++] = (int32_t)cell;
                }
            }
            a->todo2[count++] = (int32_t)cell;
        }
    }
    for (; number + TILE_CELLS <= count; number += TILE_CELLS)
        a->source_end[number] = NAME(list_sources)(net, w, a, a->todo2 + number, TILE_CELLS, a->source + 288 * number);
    for (; number < count; number++)
        a->source_end[number] = NAME(list_sources)(net, w, a, a->todo2 + number, 1, a->source + 288 * number);
    for (int tile = 0; tile < VECTORS2 / TILE_VECTORS; tile++)
        NAME(second_tiles)(net, w, a, count, tile, TILE_VECTORS);
    if (VECTORS2 % TILE_VECTORS)
        NAME(second_tiles)(net, w, a, count, VECTORS2 / TILE_VECTORS, VECTORS2 % TILE_VECTORS);
    while (num_new--) {
        struct blank2 *kind = new_kind[num_new];
        memcpy(kind->map, a->map2 + 64 * new_cell[num_new], sizeof kind->map);
        memcpy(kind->winner, a->winner2 + 64 * new_cell[num_new], sizeof kind->winner);
        kind->is_known = 2;
    }
}

/* The scalar product of two vectors of 64 * `blocks` floats: 64 sums, then those in pairs. */
static float NAME(product)(const float *left, const float *right, long blocks) {
    vector part[VECTORS2] = {{0}};
    for (long i = 0; i < blocks; i++)
        for (int v = 0; v < VECTORS2; v++)
            part[v] += ((const vector *)left)[i * VECTORS2 + v] * ((const vector *)right)[i * VECTORS2 + v];
    float sum[64];
    memcpy(sum, part, sizeof sum);
    for (int half = 32; half; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

/* The hidden units. */
static void NAME(hidden_layer)(const struct network *net, const struct weights *w, struct activations *a) {
    const long features = 64 * net->cells2;
    for (long unit = 0; unit < net->hidden; unit++) {
        float value = w->bias_fc1[unit] + NAME(product)(w->fc1 + unit * features, a->map2, net->cells2);
        a->hidden[unit] = value <= 0.0f ? 0.0f : value;
    }
}

/* The scores of the classes from the hidden units; returns the largest. */
static float NAME(scores)(const struct network *net, const struct weights *w, struct activations *a) {
    const long hidden = net->hidden;
    float largest = -INFINITY;
    for (long k = 0; k < net->classes; k++) {
        a->score[k] = w->bias_fc2[k];
        for (long unit = 0; unit < hidden; unit++)
            a->score[k] = fmaf(w->fc2[k * hidden + unit], a->hidden[unit], a->score[k]);
        largest = a->score[k] <= largest ? largest : a->score[k];
    }
    return largest;
}

/* Loss, and backwards as far as something is trained: to the second layer's output, whose gradient is left in `a`, if
   convolutions are. */
static double NAME(classifier)(
    const struct network *net, const struct weights *w, struct activations *a, struct sums *g, long label, float share,
    unsigned trained
) {
    const long features = 64 * net->cells2, hidden = net->hidden, classes = net->classes;
    const float largest = NAME(scores)(net, w, a);
    memset(a->hidden_gradient, 0, hidden * sizeof(float));
    double norm = 0.0;
    for (long k = 0; k < classes; k++)
        norm += exp((double)a->score[k] - largest);
    for (long k = 0; k < classes; k++) {
        const float slope = share * (float)(exp((double)a->score[k] - largest) / norm - (k == label));
        g->bias_fc2[k] += slope;
        for (long unit = 0; unit < hidden; unit++) {
            const long at = k * hidden + unit;
            g->fc2[at] = fmaf(slope, a->hidden[unit], g->fc2[at]);
            a->hidden_gradient[unit] = fmaf(slope, w->fc2[at], a->hidden_gradient[unit]);
        }
    }
    const double loss = log(norm) + largest - a->score[label];
    if (!(trained & BELOW_FC2))
        return loss;
    const int sums = (trained & 1 << FC1) != 0, goes_on = (trained & CONVOLUTIONS) != 0;
    if (goes_on)
        memset(a->gradient2, 0, features * sizeof(float));
    for (long unit = 0; unit < hidden; unit++) {
        if (a->hidden[unit] <= 0.0f)
            continue;
        const float slope = a->hidden_gradient[unit];
        g->bias_fc1[unit] += slope;
        const vector *weight = (const vector *)(w->fc1 + unit * features), *map = (const vector *)a->map2;
        vector *sum = (vector *)(g->fc1 + unit * features), *gradient = (vector *)a->gradient2;
        if (sums && goes_on)
            for (long i = 0; i < features / LANES; i++) {
                sum[i] += slope * map[i];
                gradient[i] += slope * weight[i];
            }
        else if (sums)
            for (long i = 0; i < features / LANES; i++)
                sum[i] += slope * map[i];
        else if (goes_on)
            for (long i = 0; i < features / LANES; i++)
                gradient[i] += slope * weight[i];
    }
    return loss;
}

/* The second layer's winners that have a gradient: by cell and place in it, 0 to 3, their channels; and by channel the
   pixel that their patch starts at with their gradient. The sums of the latter are those of the biases. */
static void NAME(list_winners)(const struct network *net, struct activations *a, struct sums *g) {
    const int32_t width = (int32_t)net->width1 + 2;
    uint16_t *restrict by_place = a->by_place;
    struct winner *restrict end[64];
    vector bias[VECTORS2] = {{0}};
    for (int channel = 0; channel < 64; channel++)
        end[channel] = a->by_channel + channel * net->cells2;
    for (long cell = 0; cell < net->cells2; cell++) {
        const float *slope = a->gradient2 + 64 * cell;
        uint64_t channels[4] = {0};
        for (int v = 0; v < VECTORS2; v++) {
            const lanes place = ((const lanes *)(a->winner2 + 64 * cell))[v];
            const vector own = ((const vector *)slope)[v];
            bias[v] += (vector)((lanes)own & (place != DEAD));
            for (int p = 0; p < 4; p++)
                channels[p] |= (uint64_t)NAME(bits)((own != 0.0f) & (place == p)) << v * LANES;
        }
        for (int p = 0; p < 4; p++) {
            uint16_t *first = by_place;
            for (int i = 0; i < 64; i += 8) {
                const uint8_t byte = (uint8_t)(channels[p] >> i);
                const shorts8 some = set_bits[byte] + (uint16_t)i;
                memcpy(by_place, &some, sizeof some);
                by_place += __builtin_popcount(byte);
            }
            const int32_t pixel = a->corner2[cell] + p / 2 * width + p % 2;
            for (const uint16_t *it = first; it < by_place; it++)
                *end[*it]++ = (struct winner){pixel, slope[*it]};
            a->num_by_place[4 * cell + p] = (int32_t)(by_place - first);
        }
    }
    for (int channel = 0; channel < 64; channel++)
        a->num_by_channel[channel] = (int32_t)(end[channel] - a->by_channel - channel * net->cells2);
    for (int v = 0; v < VECTORS2; v++)
        ((loose *)g->bias2)[v] += bias[v];
}

/* The gradient of the second layer's weights, half of the input channels after the other: so their map stays in the
   first cache while the lists are read. */
static void NAME(second_weights)(const struct network *net, const struct activations *a, struct sums *g) {
    const long width = LANES * (net->width1 + 2);
    for (int half = 0; half < 32; half += 16)
        for (int channel = 0; channel < 64; channel++) {
            const struct winner *first = a->by_channel + channel * net->cells2;
            const struct winner *end = first + a->num_by_channel[channel];
            for (int input = half; input < half + 16; input += LANES) {
                const float *map = a->map1 + input * net->pixels1;
                float *total = g->conv2 + 288 * channel + input;
                vector sum[9] = {{0}};
                for (const struct winner *it = first; it < end; it++) {
                    const float *pixel = map + LANES * (long)it->pixel;
#pragma GCC unroll 9
                    for (int tap = 0; tap < 9; tap++)
                        sum[tap] += it->slope * *(const vector *)(pixel + tap / 3 * width + tap % 3 * LANES);
                }
                for (int tap = 0; tap < 9; tap++)
                    *(loose *)(total + 32 * tap) += sum[tap];
            }
        }
}

/* The gradient of the second layer's input: for every cell that of the two upper places in it, then of the lower. */
static void NAME(second_input)(const struct network *net, const struct weights *w, struct activations *a) {
    const long width = LANES * (net->width1 + 2);
    memset(a->gradient1, 0, 32 * net->pixels1 * sizeof(float));
    for (int v = 0; v < VECTORS1; v++) {
        const float *weights = w->conv2_by_output + v * 64 * 9 * LANES;
        const uint16_t *it = a->by_place;
        for (long half = 0; half < 2 * net->cells2; half++) {
            const long cell = half / 2;
            const float *slope = a->gradient2 + 64 * cell;
            const int32_t *count = a->num_by_place + 2 * half;
            float *corner = a->gradient1 + LANES * (v * net->pixels1 + a->corner2[cell]) + half % 2 * width;
            vector sum[3][4];
            for (int i = 0; i < 12; i++)
                sum[i / 4][i % 4] = *(const vector *)(corner + i / 4 * width + i % 4 * LANES);
#pragma GCC unroll 2
            for (int p = 0; p < 2; p++)
                for (const uint16_t *end = it + count[p]; it < end; it++) {
                    const vector *weight = (const vector *)(weights + 9 * LANES * (long)*it);
#pragma GCC unroll 9
                    for (int tap = 0; tap < 9; tap++)
                        sum[tap / 3][tap % 3 + p] += slope[*it] * weight[tap];
                }
            for (int i = 0; i < 12; i++)
                *(vector *)(corner + i / 4 * width + i % 4 * LANES) = sum[i / 4][i % 4];
        }
    }
}

/* Of the four floats at `window`, in each lane the one at `place`, 0 to 3; the first for DEAD. */
static ALWAYS_INLINE vector NAME(pick)(const float *window, lanes place) {
#if defined(__x86_64__) && LANES == 16
    return (vector)_mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_load_ps(window)), (__m512i)place);
#elif defined(__x86_64__) && LANES == 8
    return (vector)_mm256_permutevar_ps(_mm256_broadcast_ps((const __m128 *)window), (__m256i)place);
#else
    const lanes byte = (place & 3) * 0x04040404 + 0x03020100; /* the numbers of its four bytes */
    return (vector)vqtbl1q_u8(*(const uint8x16_t *)window, (uint8x16_t)byte);
#endif
}

/* The gradient of the first layer's weights. */
static void NAME(first_weights)(const struct network *net, struct activations *a, struct sums *g) {
    const long width = net->width + 2, plane = (net->height + 2) * width, row_of_windows = 4 * (2 * net->width1 + 1);
    for (long channel = 0; channel < net->channels; channel++) {
        const float *pixel = a->image + channel * plane;
        float *window = a->window;
        for (long row = 0; row <= 2 * net->height1; row++, pixel += width)
            for (long column = 0; column <= 2 * net->width1; column++, window += 4) {
                memcpy(window, pixel + column, 2 * sizeof(float));
                memcpy(window + 2, pixel + width + column, 2 * sizeof(float));
            }
        for (int v = 0; v < VECTORS1; v++) {
            vector sum[9] = {{0}}, bias = {0};
            for (long row = 0; row < net->height1; row++) {
                const float *corner = a->window + 2 * row * row_of_windows;
                const float *gradient =
                    a->gradient1 + LANES * (v * net->pixels1 + (row + 1) * (net->width1 + 2) + 1);
                const int32_t *winner = a->winner1 + 32 * row * net->width1 + v * LANES;
                for (long column = 0; column < net->width1; column++) {
                    const lanes place = *(const lanes *)(winner + 32 * column);
                    const vector slope =
                        (vector)(*(const lanes *)(gradient + LANES * column) & (place != DEAD));
                    bias += slope;
#pragma GCC unroll 9
                    for (int tap = 0; tap < 9; tap++)
                        sum[tap] +=
                            slope * NAME(pick)(corner + 8 * column + tap / 3 * row_of_windows + tap % 3 * 4, place);
                }
            }
            vector *total = (vector *)g->conv1 + 9 * channel * VECTORS1 + v;
            for (int tap = 0; tap < 9; tap++)
                total[tap * VECTORS1] += sum[tap];
            if (channel == 0)
                ((vector *)g->bias1)[v] += bias;
        }
    }
}

/* One image from the layer `first`, whose input is known, to the loss, and backwards to what is trained. */
static double NAME(one_image)(
    const struct network *net, const struct weights *w, struct activations *a, struct sums *g, long label, float share,
    int first, unsigned trained
) {
    if (first <= LAYER_CONV1)
        NAME(first_layer)(net, w, a);
    else if (first == LAYER_CONV2 && a->finds_blank)
        NAME(look)(net, a);
    if (first <= LAYER_CONV2)
        NAME(second_layer)(net, w, a);
    if (first <= LAYER_FC1)
        NAME(hidden_layer)(net, w, a);
    const double loss = NAME(classifier)(net, w, a, g, label, share, trained);
    if (trained & CONVOLUTIONS)
        NAME(list_winners)(net, a, g);
    if (trained & 1 << CONV2)
        NAME(second_weights)(net, a, g);
    if (trained & CONVOLUTION1) {
        NAME(second_input)(net, w, a);
        NAME(first_weights)(net, a, g);
    }
    return loss;
}

/* Scores of the classes alone, into `a`. */
static void NAME(forward)(const struct network *net, const struct weights *w, struct activations *a) {
    NAME(first_layer)(net, w, a);
    NAME(second_layer)(net, w, a);
    NAME(hidden_layer)(net, w, a);
    NAME(scores)(net, w, a);
}

/* A step: target = source + factor * values, each entry rounded once; the source may be the target. */
static void NAME(add_scaled)(float *target, const float *source, const float *values, float factor, Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < size; i++)
        target[i] = __builtin_fmaf(factor, values[i], source[i]);
}

#undef VECTORS1
#undef VECTORS2
#undef vector
#undef lanes
#undef loose
#undef TILE_CELLS
#undef TILE_VECTORS
