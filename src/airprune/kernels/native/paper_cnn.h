/* The paper's CNN on one image, forwards and backwards:

     image -> 3x3 convolution, 32 channels -> 2x2 max-pooling -> ReLU
           -> 3x3 convolution, 64 channels -> 2x2 max-pooling -> ReLU
           -> hidden units -> ReLU -> classes -> cross-entropy

   Images go through one at a time, so that everything between the layers stays in the CPU's caches. Pooling is done as
   soon as its four values are known, and a gradient goes back only through the one value in four that won.

   This file is included once per instruction set by paper_cnn.c, which sets
     NAME          makes a function's name
     LANES         floats in a vector
     TILE_CELLS    pooling cells of the second layer computed together
     TILE_VECTORS  vectors of its channels computed together
     TAP_ROWS      rows of its 3x3 weights whose gradients are summed together, 1 or 3
     PATCH_ROWS    rows of the 4x4 pixels below a pooling cell whose gradients are summed together, 2 or 4
   so that sums stay in registers. Every sum adds the same numbers in the same order whatever these are: all instruction
   sets give the same bits. */

#define VECTORS1 (32 / LANES) /* per pixel of the first layer */
#define VECTORS2 (64 / LANES) /* and of the second */
#define vector NAME(vector)
#define lanes NAME(lanes)
#define loose NAME(loose)
typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int lanes __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4))); /* in memory that is not aligned */

enum { NAME(tile) = TILE_VECTORS * LANES }; /* output channels of the second layer that are computed together */

/* The four values of a pooling cell down to their maximum, after ReLU, and the first to attain it. NaN stays NaN. */
static ALWAYS_INLINE void NAME(pool)(const vector value[4], float *maximum, int32_t *winner) {
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
}

/* First convolution, pooling and ReLU. */
static void NAME(first_layer)(const struct network *net, const struct weights *w, struct activations *a) {
    const long width = net->width + 2, plane = (net->height + 2) * width;
    for (long row = 0; row < net->height1; row++)
        for (long column = 0; column < net->width1; column++) {
            const float *corner = a->image + 2 * row * width + 2 * column;
            float *map = a->map1 + 32 * ((row + 1) * (net->width1 + 2) + column + 1);
            int32_t *winner = a->winner1 + 32 * (row * net->width1 + column);
            for (int v = 0; v < VECTORS1; v += 2) {
                const vector *weight = (const vector *)w->conv1 + v, *bias = (const vector *)w->bias1 + v;
                vector value[2][4];
                for (int p = 0; p < 4; p++) {
                    value[0][p] = bias[0];
                    value[1][p] = bias[1];
                }
                for (long channel = 0; channel < net->channels; channel++)
                    for (int tap = 0; tap < 9; tap++, weight += VECTORS1) {
                        const float *pixel = corner + channel * plane + tap / 3 * width + tap % 3;
                        for (int p = 0; p < 4; p++) {
                            const float x = pixel[p / 2 * width + p % 2];
                            value[0][p] += weight[0] * x;
                            value[1][p] += weight[1] * x;
                        }
                    }
                NAME(pool)(value[0], map + v * LANES, winner + v * LANES);
                NAME(pool)(value[1], map + (v + 1) * LANES, winner + (v + 1) * LANES);
            }
        }
}

/* Second convolution, pooling and ReLU for `cells` pooling cells and the channels of one tile. */
static ALWAYS_INLINE void NAME(second_tile)(
    const struct network *net, const struct weights *w, struct activations *a, long cell, int tile, const int cells
) {
    const long width = 32 * (net->width1 + 2);
    const float *corner[TILE_CELLS];
    vector value[TILE_CELLS][TILE_VECTORS][4];
    for (int c = 0; c < cells; c++) {
        corner[c] = a->map1 + 32 * a->corner2[cell + c];
        for (int v = 0; v < TILE_VECTORS; v++)
            for (int p = 0; p < 4; p++)
                value[c][v][p] = ((const vector *)w->bias2)[tile * TILE_VECTORS + v];
    }
    const vector *weight = (const vector *)w->conv2 + tile * 288 * TILE_VECTORS;
    for (int tap = 0; tap < 9; tap++) {
        const long shift = tap / 3 * width + tap % 3 * 32;
#pragma GCC unroll 2
        for (int channel = 0; channel < 32; channel++, weight += TILE_VECTORS)
            for (int c = 0; c < cells; c++)
                for (int p = 0; p < 4; p++) {
                    const float x = corner[c][shift + p / 2 * width + p % 2 * 32 + channel];
                    for (int v = 0; v < TILE_VECTORS; v++)
                        value[c][v][p] += weight[v] * x;
                }
    }
    for (int c = 0; c < cells; c++)
        for (int v = 0; v < TILE_VECTORS; v++) {
            const long at = 64 * (cell + c) + (tile * TILE_VECTORS + v) * LANES;
            NAME(pool)(value[c][v], a->map2 + at, a->winner2 + at);
        }
}

static void NAME(second_layer)(const struct network *net, const struct weights *w, struct activations *a) {
    for (int tile = 0; tile < VECTORS2 / TILE_VECTORS; tile++) {
        long cell = 0;
        for (; cell + TILE_CELLS <= net->cells2; cell += TILE_CELLS)
            NAME(second_tile)(net, w, a, cell, tile, TILE_CELLS);
        for (; cell < net->cells2; cell++)
            NAME(second_tile)(net, w, a, cell, tile, 1);
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

/* Fully connected layers and loss, and backwards to the second layer's output, whose gradient is left in `a`. */
static double NAME(classifier)(
    const struct network *net, const struct weights *w, struct activations *a, struct sums *g, long label, float share
) {
    const long features = 64 * net->cells2, hidden = net->hidden, classes = net->classes;
    for (long unit = 0; unit < hidden; unit++) {
        float value = w->bias_fc1[unit] + NAME(product)(w->fc1 + unit * features, a->map2, net->cells2);
        a->hidden[unit] = value <= 0.0f ? 0.0f : value;
        a->hidden_gradient[unit] = 0.0f;
    }
    float largest = -INFINITY;
    for (long k = 0; k < classes; k++) {
        a->score[k] = w->bias_fc2[k];
        for (long unit = 0; unit < hidden; unit++)
            a->score[k] = fmaf(w->fc2[k * hidden + unit], a->hidden[unit], a->score[k]);
        largest = a->score[k] <= largest ? largest : a->score[k];
    }
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
    memset(a->gradient2, 0, features * sizeof(float));
    for (long unit = 0; unit < hidden; unit++) {
        if (a->hidden[unit] <= 0.0f)
            continue;
        const float slope = a->hidden_gradient[unit];
        g->bias_fc1[unit] += slope;
        const vector *weight = (const vector *)(w->fc1 + unit * features), *map = (const vector *)a->map2;
        vector *sum = (vector *)(g->fc1 + unit * features), *gradient = (vector *)a->gradient2;
        for (long i = 0; i < features / LANES; i++) {
            sum[i] += slope * map[i];
            gradient[i] += slope * weight[i];
        }
    }
    return log(norm) + largest - a->score[label];
}

/* The second layer's winners that have a gradient: by channel with the pixel that their patch starts at, and by cell
   and place in it, 0 to 3, with their channel. */
static void NAME(list_winners)(const struct network *net, struct activations *a) {
    const long width = net->width1 + 2;
    memset(a->num_by_channel, 0, 64 * sizeof(int32_t));
    for (long cell = 0; cell < net->cells2; cell++) {
        const float *slope = a->gradient2 + 64 * cell;
        const int32_t *place = a->winner2 + 64 * cell;
        int32_t count[DEAD + 1] = {0};
        for (int channel = 0; channel < 64; channel++) {
            const int p = slope[channel] == 0.0f ? DEAD : place[channel];
            const int32_t pixel = a->corner2[cell] + (int32_t)((p >> 1 & 1) * width + (p & 1));
            int32_t *number = a->num_by_channel + channel;
            a->by_channel[channel * net->cells2 + *number] = (struct winner){pixel, slope[channel]};
            *number += p != DEAD;
            a->by_place[(5 * cell + p) * 64 + count[p]++] = (struct winner){channel, slope[channel]};
        }
        memcpy(a->num_by_place + 4 * cell, count, 4 * sizeof(int32_t));
    }
}

/* The gradient of the second layer's weights. */
static void NAME(second_weights)(const struct network *net, const struct activations *a, struct sums *g) {
    enum { ROW = 96 / LANES };
    const long width = 32 * (net->width1 + 2);
    for (int channel = 0; channel < 64; channel++) {
        const struct winner *first = a->by_channel + channel * net->cells2, *end = first + a->num_by_channel[channel];
        float bias = 0.0f;
        for (const struct winner *it = first; it < end; it++)
            bias += it->slope;
        g->bias2[channel] += bias;
        for (int tap_row = 0; tap_row < 3; tap_row += TAP_ROWS) {
            vector sum[TAP_ROWS * ROW] = {{0}};
            for (const struct winner *it = first; it < end; it++) {
                const float *pixel = a->map1 + 32 * it->index + tap_row * width;
#pragma GCC unroll 24
                for (int i = 0; i < TAP_ROWS * ROW; i++)
                    sum[i] += it->slope * *(const vector *)(pixel + i / ROW * width + i % ROW * LANES);
            }
            loose *total = (loose *)(g->conv2 + 288 * channel + 96 * tap_row);
            for (int i = 0; i < TAP_ROWS * ROW; i++)
                total[i] += sum[i];
        }
    }
}

/* What the winners at one place `p` of a cell add to the gradients of the pixels below it. */
static ALWAYS_INLINE void NAME(add_place)(
    vector sum[PATCH_ROWS][4], const float *weights, const struct winner *first, int count, const int row, const int p
) {
    for (const struct winner *it = first; it < first + count; it++) {
        const float *weight = weights + 288 * it->index;
#pragma GCC unroll 9
        for (int tap = 0; tap < 9; tap++) {
            const int y = p / 2 + tap / 3 - row, x = p % 2 + tap % 3;
            if (y >= 0 && y < PATCH_ROWS)
                sum[y][x] += it->slope * *(const loose *)(weight + 32 * tap);
        }
    }
}

/* The gradient of the second layer's input. */
static void NAME(second_input)(const struct network *net, const struct weights *w, struct activations *a) {
    const long width = 32 * (net->width1 + 2);
    memset(a->gradient1, 0, (net->height1 + 2) * width * sizeof(float));
    for (int v = 0; v < VECTORS1; v++)
        for (long cell = 0; cell < net->cells2; cell++) {
            const struct winner *winners = a->by_place + 5 * 64 * cell;
            const int32_t *count = a->num_by_place + 4 * cell;
            const float *weights = w->conv2_by_output + v * LANES;
            for (int row = 0; row < 4; row += PATCH_ROWS) {
                vector sum[PATCH_ROWS][4];
                float *corner = a->gradient1 + 32 * a->corner2[cell] + row * width + v * LANES;
                for (int i = 0; i < 4 * PATCH_ROWS; i++)
                    sum[i / 4][i % 4] = *(vector *)(corner + i / 4 * width + i % 4 * 32);
                NAME(add_place)(sum, weights, winners, count[0], row, 0);
                NAME(add_place)(sum, weights, winners + 64, count[1], row, 1);
                NAME(add_place)(sum, weights, winners + 128, count[2], row, 2);
                NAME(add_place)(sum, weights, winners + 192, count[3], row, 3);
                for (int i = 0; i < 4 * PATCH_ROWS; i++)
                    *(vector *)(corner + i / 4 * width + i % 4 * 32) = sum[i / 4][i % 4];
            }
        }
}

/* The gradient of the first layer's weights. */
static void NAME(first_weights)(const struct network *net, const struct activations *a, struct sums *g) {
    const long width = net->width + 2, plane = (net->height + 2) * width;
    for (long channel = 0; channel < net->channels; channel++)
        for (int v = 0; v < VECTORS1; v++) {
            vector sum[9] = {{0}}, bias = {0};
            for (long row = 0; row < net->height1; row++)
                for (long column = 0; column < net->width1; column++) {
                    const float *corner = a->image + channel * plane + 2 * row * width + 2 * column;
                    const long at = 32 * ((row + 1) * (net->width1 + 2) + column + 1) + v * LANES;
                    const vector slope = *(const vector *)(a->gradient1 + at);
                    const lanes place =
                        *(const lanes *)(a->winner1 + 32 * (row * net->width1 + column) + v * LANES);
                    bias += (vector)((lanes)slope & (place != DEAD));
#pragma GCC unroll 4
                    for (int p = 0; p < 4; p++) {
                        const vector own = (vector)((lanes)slope & (place == p));
                        const float *pixel = corner + p / 2 * width + p % 2;
#pragma GCC unroll 9
                        for (int tap = 0; tap < 9; tap++)
                            sum[tap] += own * pixel[tap / 3 * width + tap % 3];
                    }
                }
            vector *total = (vector *)g->conv1 + 9 * channel * VECTORS1 + v;
            for (int tap = 0; tap < 9; tap++)
                total[tap * VECTORS1] += sum[tap];
            if (channel == 0)
                ((vector *)g->bias1)[v] += bias;
        }
}

static double NAME(one_image)(
    const struct network *net, const struct weights *w, struct activations *a, struct sums *g, long label, float share
) {
    NAME(first_layer)(net, w, a);
    NAME(second_layer)(net, w, a);
    const double loss = NAME(classifier)(net, w, a, g, label, share);
    NAME(list_winners)(net, a);
    NAME(second_weights)(net, a, g);
    NAME(second_input)(net, w, a);
    NAME(first_weights)(net, a, g);
    return loss;
}

/* A step: target += factor * values, each entry rounded once. */
static void NAME(add_scaled)(float *target, const float *values, float factor, Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < size; i++)
        target[i] = __builtin_fmaf(factor, values[i], target[i]);
}

#undef VECTORS1
#undef VECTORS2
#undef vector
#undef lanes
#undef loose
#undef NAME
#undef LANES
#undef TILE_CELLS
#undef TILE_VECTORS
#undef TAP_ROWS
#undef PATCH_ROWS
