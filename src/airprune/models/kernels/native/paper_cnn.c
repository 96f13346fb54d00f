/* The paper's CNN for Python: checks and unpacks the arguments, picks the instruction set, runs paper_cnn.h, or flat.h
   for what is done with flat vectors beside training. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* The parameters, in this order wherever all of them are listed. */
enum { CONV1, BIAS1, CONV2, BIAS2, FC1, BIAS_FC1, FC2, BIAS_FC2, NUM_PARAMETERS };

/* Which of them are trained, that is have a gradient: a bit for each. Nothing goes back below the lowest. */
enum {
    CONVOLUTION1 = 1 << CONV1 | 1 << BIAS1,
    CONVOLUTIONS = CONVOLUTION1 | 1 << CONV2 | 1 << BIAS2,
    BELOW_FC2 = CONVOLUTIONS | 1 << FC1 | 1 << BIAS_FC1,
    EVERYTHING = (1 << NUM_PARAMETERS) - 1,
    CLASSIFIER = EVERYTHING & ~CONVOLUTIONS
};

enum { LAYER_CONV1, LAYER_CONV2, LAYER_FC1, LAYER_FC2 };

/* The lowest layer of which something is trained. */
static int lowest_layer(unsigned trained) {
    if (trained & CONVOLUTIONS)
        return trained & CONVOLUTION1 ? LAYER_CONV1 : LAYER_CONV2;
    return trained & BELOW_FC2 ? LAYER_FC1 : LAYER_FC2;
}

/* Sizes: of the images, of the maps after the first and the second layer, and of the classifier. */
struct network {
    long channels, height, width, height1, width1, height2, width2, cells2, hidden, classes;
    long pixels1; /* of a map between the layers, with its border */
};

/* Weights as the network reads them: `conv1` by input channel, tap and output channel; `conv2` by tile of output
   channels, tap, input channel and output channel; `conv2_by_output` by vector of input channels, output channel, tap
   and input channel; `fc1` by unit, cell and channel. `finite`: all of `conv2` is. */
struct weights {
    float *conv1, *bias1, *conv2, *conv2_by_output, *bias2, *fc1;
    const float *bias_fc1, *fc2, *bias_fc2;
    int finite;
};

/* How an instruction set wants them: floats in a vector, output channels of a tile of `conv2`. */
struct layout {
    int lanes, tile;
};

/* The gradient's sums over the minibatch; `conv1`, `bias1` and `fc1` as above, the others as the flat model has them. */
struct sums {
    float *conv1, *bias1, *fc1, *conv2, *bias2, *bias_fc1, *fc2, *bias_fc2;
};

enum { DEAD = 4 }; /* the winner of a pooling cell whose maximum the ReLU cuts off; others are 0 to 3 */

/* A value of the second layer that won its pooling cell: the first pixel below it, and its gradient. */
struct winner {
    int32_t pixel;
    float slope;
};

/* What one image leaves behind on its way. `image`, `map1` and `gradient1` have a border of zeros; the latter two lie by
   vector of channels, pixel and channel, the other maps channels last. */
struct activations {
    float *image, *map1, *gradient1, *map2, *gradient2, *hidden, *hidden_gradient, *score;
    float *window; /* the 2x2 pixels from each pixel of one channel of the image */
    int32_t *winner1, *winner2;
    uint32_t *live1;        /* which channels of a pixel of `map1` are not zero, a bit for each */
    int32_t *corner2;       /* the first pixel below each pooling cell of the second layer */
    uint16_t *source;       /* the terms of each cell of the second layer, as 32 * tap + channel */
    uint16_t **source_end;  /* where those of a cell end */
    int32_t *source_offset; /* of each term: where in `map1` its value is, from that of the first pixel */
    struct winner *by_channel;
    uint16_t *by_place;
    int32_t *num_by_channel, *num_by_place;
    int finds_blank;     /* whether `background` is known and images are small enough to be looked at */
    int32_t *background; /* in each channel, as bits */
    uint64_t *seen;      /* see `look` */
    struct blank1 *blank1;
    struct blank2 *blank2;
    int32_t *todo2; /* cells of the second layer that are not copied */
};

/* What becomes of a pooling cell that sees nothing but the background depends on the weights and on the borders that it
   touches: these make its kind. */
struct blank1 {
    _Alignas(64) float map[32];
    int32_t winner[32];
    uint32_t live;
    int is_known;
};

struct blank2 {
    _Alignas(64) float map[64];
    int32_t winner[64];
    int is_known; /* 1: the cell is being computed */
};

enum { BLANK_KINDS = 16, MOST_BLANK_COLUMNS = 56 };

static ALWAYS_INLINE int kind_of(long row, long height, long column, long width) {
    return (row == 0) + 2 * (row == height - 1) + 4 * (column == 0) + 8 * (column == width - 1);
}

/* Whether anything but the background is seen in these rows: see `look`. */
static ALWAYS_INLINE uint64_t seen_in(const struct network *net, const struct activations *a, long first, long stop) {
    uint64_t seen = 0;
    if (a->finds_blank)
        for (long row = first < 0 ? 0 : first; row < stop && row < net->height; row++)
            seen |= a->seen[row];
    return seen;
}

typedef uint16_t shorts8 __attribute__((vector_size(16)));
typedef float floats8 __attribute__((vector_size(32), aligned(4)));

static shorts8 set_bits[256]; /* which bits of a byte are set, in order; the rest of a row does not matter */

static void find_set_bits(void) {
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0, count = 0; bit < 8; bit++)
            if (byte >> bit & 1)
                set_bits[byte][count++] = (uint16_t)bit;
}

#if defined(__x86_64__)

#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define BEGIN_TARGET(features) PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define END_TARGET PRAGMA(clang attribute pop)
#else
#define BEGIN_TARGET(features) PRAGMA(GCC push_options) PRAGMA(GCC target(features))
#define END_TARGET PRAGMA(GCC pop_options)
#endif

BEGIN_TARGET("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#define NAME(name) name##_avx512
#define LANES 16
#define TILE_CELLS 2
#define TILE_VECTORS 2
#include "paper_cnn.h"
#include "flat.h"
#undef NAME
#undef LANES
END_TARGET

BEGIN_TARGET("avx2,fma")
#define NAME(name) name##_avx2
#define LANES 8
#define TILE_CELLS 1
#define TILE_VECTORS 3
#include "paper_cnn.h"
#include "flat.h"
#undef NAME
#undef LANES
END_TARGET

#elif defined(__aarch64__)

#define NAME(name) name##_neon
#define LANES 4
#define TILE_CELLS 1
#define TILE_VECTORS 4
#include "paper_cnn.h"
#include "flat.h"
#undef NAME
#undef LANES

#else
#error "no instruction set with fused multiply-add is known for this processor"
#endif

struct instruction_set {
    const char *name;
    double (*one_image)(
        const struct network *, const struct weights *, struct activations *, struct sums *, long, float, int, unsigned
    );
    void (*forward)(const struct network *, const struct weights *, struct activations *);
    void (*add_scaled)(float *, const float *, const float *, float, Py_ssize_t);
    int (*choose)(
        uint8_t *, const float *, const float *, float, int, long, const int64_t *, long, long, int32_t *
    );
    int (*all_finite)(const float *, long);
    float (*hold)(float *, const uint8_t *, long);
    void (*multiply)(float *, const uint8_t *, long);
    void (*masked_step)(float *, const float *, const uint8_t *, float, long);
    void (*add_state)(double *, const float *, double, long);
    void (*tally)(uint8_t *, const uint8_t *, long);
    void (*add_counts)(int64_t *, const uint8_t *, long);
    const struct layout *layout;
};

#define SET(set)                                                                                                       \
    (struct instruction_set){#set,             one_image_##set, forward_##set,  add_scaled_##set,  choose_##set,       \
                             all_finite_##set, hold_##set,      multiply_##set, masked_step_##set, add_state_##set,    \
                             tally_##set,      add_counts_##set, &layout_##set}

/* Those that this CPU can run, the fastest first. */
static int usable_sets(struct instruction_set *sets) {
    int count = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        sets[count++] = SET(avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        sets[count++] = SET(avx2);
#else
    sets[count++] = SET(neon);
#endif
    return count;
}

/* The one of this name; all zero if this CPU cannot run it. */
static struct instruction_set set_named(const char *name) {
    struct instruction_set sets[4], set = {0};
    for (int i = usable_sets(sets) - 1; i >= 0; i--)
        if (strcmp(sets[i].name, name) == 0)
            set = sets[i];
    return set;
}

static struct network network_of(long channels, long height, long width, long hidden, long classes) {
    struct network net = {.channels = channels, .height = height, .width = width, .hidden = hidden, .classes = classes};
    net.height1 = height / 2;
    net.width1 = width / 2;
    net.height2 = net.height1 / 2;
    net.width2 = net.width1 / 2;
    net.cells2 = net.height2 * net.width2;
    net.pixels1 = (net.height1 + 2) * (net.width1 + 2);
    return net;
}

static long parameter_size(const struct network *net, int which) {
    const long sizes[NUM_PARAMETERS] = {
        288 * net->channels, 32, 18432, 64, 64 * net->cells2 * net->hidden, net->hidden, net->hidden * net->classes,
        net->classes};
    return sizes[which];
}

/* Memory for everything but the parameters and the images, cut from one piece; with `base` NULL only measured. */
struct workspace {
    char *base;
    size_t used;
    struct weights w;
    struct sums g;
    struct activations a;
};

static void *cut(struct workspace *work, size_t bytes) {
    void *piece = work->base ? work->base + work->used : NULL;
    work->used += (bytes + 63) / 64 * 64;
    return piece;
}

static struct workspace workspace_of(const struct network *net, char *base) {
    struct workspace work = {.base = base};
    const size_t pixels1 = net->pixels1, cells1 = net->height1 * net->width1;
    const size_t cells2 = net->cells2, f = sizeof(float), w = sizeof(struct winner);
    work.w.conv1 = cut(&work, 288 * net->channels * f);
    work.w.bias1 = cut(&work, 32 * f);
    work.w.conv2 = cut(&work, 64 * 288 * f);
    work.w.conv2_by_output = cut(&work, 64 * 288 * f);
    work.w.bias2 = cut(&work, 64 * f);
    work.w.fc1 = cut(&work, 64 * cells2 * net->hidden * f);
    work.g.conv1 = cut(&work, 288 * net->channels * f);
    work.g.bias1 = cut(&work, 32 * f);
    work.g.fc1 = cut(&work, 64 * cells2 * net->hidden * f);
    work.a.image = cut(&work, net->channels * (net->height + 2) * (net->width + 2) * f);
    work.a.map1 = cut(&work, 32 * pixels1 * f);
    work.a.live1 = cut(&work, pixels1 * f);
    work.a.gradient1 = cut(&work, 32 * pixels1 * f);
    work.a.map2 = cut(&work, 64 * cells2 * f);
    work.a.gradient2 = cut(&work, 64 * cells2 * f);
    work.a.hidden = cut(&work, net->hidden * f);
    work.a.hidden_gradient = cut(&work, net->hidden * f);
    work.a.score = cut(&work, net->classes * f);
    work.a.window = cut(&work, 4 * (2 * net->height1 + 1) * (2 * net->width1 + 1) * f);
    work.a.source = cut(&work, (288 * cells2 + 8) * sizeof(uint16_t));
    work.a.source_end = cut(&work, cells2 * sizeof(uint16_t *));
    work.a.source_offset = cut(&work, 288 * f);
    work.a.winner1 = cut(&work, 32 * cells1 * f);
    work.a.winner2 = cut(&work, 64 * cells2 * f);
    work.a.corner2 = cut(&work, cells2 * f);
    work.a.by_channel = cut(&work, 64 * cells2 * w);
    work.a.by_place = cut(&work, (64 * cells2 + 8) * sizeof(uint16_t));
    work.a.num_by_channel = cut(&work, 64 * f);
    work.a.num_by_place = cut(&work, 4 * cells2 * f);
    work.a.background = cut(&work, net->channels * f);
    work.a.seen = cut(&work, net->height * sizeof(uint64_t));
    work.a.blank1 = cut(&work, BLANK_KINDS * sizeof(struct blank1));
    work.a.blank2 = cut(&work, BLANK_KINDS * sizeof(struct blank2));
    work.a.todo2 = cut(&work, cells2 * f);
    return work;
}

/* [rows][columns] to [columns][rows], in blocks that stay in the first cache. */
static void transpose(float *restrict to, const float *restrict from, long rows, long columns) {
    for (long column = 0; column < columns; column++)
        for (long row = 0; row < rows; row++)
            to[column * rows + row] = from[row * columns + column];
}

/* From the flat model's layout, convolutions [output][tap][input], to that of `struct weights`: of what is read on the way
   from the layer `first`, and back to what is trained. */
static void pack(
    const struct network *net, struct workspace *work, const float *const parameter[], const struct layout *layout,
    int first, unsigned trained
) {
    float *conv1 = work->w.conv1, *fc1 = work->w.fc1;
    const int lanes = layout->lanes;
    if (first <= LAYER_CONV1)
        for (int output = 0; output < 32; output++)
            for (int tap = 0; tap < 9; tap++)
                for (long input = 0; input < net->channels; input++)
                    conv1[(input * 9 + tap) * 32 + output] =
                        parameter[CONV1][(output * 9 + tap) * net->channels + input];
    if (first <= LAYER_CONV2) {
        for (int output = 0; output < 64; output += layout->tile) {
            const int outputs = output + layout->tile <= 64 ? layout->tile : 64 - output;
            transpose(work->w.conv2 + 288 * output, parameter[CONV2] + 288 * output, outputs, 288);
        }
        work->w.finite = 1;
        for (int i = 0; i < 64 * 288; i++)
            work->w.finite &= fabsf(parameter[CONV2][i]) < INFINITY;
    }
    if (trained & CONVOLUTION1)
        for (int v = 0; v < 32 / lanes; v++)
            for (int i = 0; i < 64 * 9; i++)
                memcpy(
                    work->w.conv2_by_output + (v * 64 * 9 + i) * lanes, parameter[CONV2] + 32 * i + v * lanes,
                    lanes * sizeof(float));
    if (first <= LAYER_FC1)
        for (long unit = 0; unit < net->hidden; unit++)
            transpose(fc1 + unit * 64 * net->cells2, parameter[FC1] + unit * 64 * net->cells2, 64, net->cells2);
    memcpy(work->w.bias1, parameter[BIAS1], 32 * sizeof(float));
    memcpy(work->w.bias2, parameter[BIAS2], 64 * sizeof(float));
    work->w.bias_fc1 = parameter[BIAS_FC1];
    work->w.fc2 = parameter[FC2];
    work->w.bias_fc2 = parameter[BIAS_FC2];
}

/* What was not summed in place goes back to the flat model's layout; what is not trained is zero. */
static void unpack(const struct network *net, const struct workspace *work, float *const gradient[], unsigned trained) {
    const float *conv1 = work->g.conv1, *fc1 = work->g.fc1;
    if (trained & 1 << CONV1)
        for (int output = 0; output < 32; output++)
            for (int tap = 0; tap < 9; tap++)
                for (long input = 0; input < net->channels; input++)
                    gradient[CONV1][(output * 9 + tap) * net->channels + input] =
                        conv1[(input * 9 + tap) * 32 + output];
    if (trained & 1 << FC1)
        for (long unit = 0; unit < net->hidden; unit++)
            transpose(gradient[FC1] + unit * 64 * net->cells2, fc1 + unit * 64 * net->cells2, net->cells2, 64);
    if (trained & 1 << BIAS1)
        memcpy(gradient[BIAS1], work->g.bias1, 32 * sizeof(float));
    for (int which = 0; which < NUM_PARAMETERS; which++)
        if (!(trained >> which & 1))
            memset(gradient[which], 0, parameter_size(net, which) * sizeof(float));
}

/* Everything that images have in common, and zeros where borders will be; `first` and `trained` as for `pack`. */
static struct workspace prepared(
    const struct network *net, const struct instruction_set *set, char *scratch, const float *const parameter[],
    int first, unsigned trained
) {
    struct workspace work = workspace_of(net, scratch);
    struct activations *a = &work.a;
    const int lanes = set->layout->lanes;
    pack(net, &work, parameter, set->layout, first, trained);
    if (first <= LAYER_CONV2 || trained & CONVOLUTION1)
        memset(a->image, 0, (char *)a->gradient1 - (char *)a->image);
    for (long cell = 0; cell < net->cells2; cell++)
        a->corner2[cell] = (int32_t)(cell / net->width2 * 2 * (net->width1 + 2) + cell % net->width2 * 2);
    for (int i = 0; i < BLANK_KINDS; i++)
        a->blank1[i].is_known = a->blank2[i].is_known = 0;
    for (int i = 0; i < 288; i++) {
        const long pixel = i / 32 / 3 * (net->width1 + 2) + i / 32 % 3;
        a->source_offset[i] = (int32_t)(lanes * (i % 32 / lanes * net->pixels1 + pixel) + i % lanes);
    }
    return work;
}

static void load_image(const struct network *net, struct activations *a, const float *image) {
    const long rows = net->channels * net->height, padded = net->width + 2;
    for (long row = 0; row < rows; row++) {
        long at = row / net->height * (net->height + 2) + row % net->height + 1;
        memcpy(a->image + at * padded + 1, image + row * net->width, net->width * sizeof(float));
    }
    if (!a->finds_blank && net->width <= MOST_BLANK_COLUMNS) {
        for (long channel = 0; channel < net->channels; channel++)
            memcpy(a->background + channel, image + channel * net->height * net->width, sizeof(float));
        a->finds_blank = 1;
    }
}

/* What a gradient of the classifier alone leaves for the next one: the maps of its images on their way there. If that
   one is of the same images and convolutions, as after a probe that has pruned the classifier, it need not compute them
   again. `buffer` begins all zero. */
struct kept {
    int64_t *count; /* images kept; 0 for nothing */
    int64_t *batch;
    float *convolutions;
    char *slot;
};

enum { MOST_KEPT = 256 };

static const int convolution_parameters[] = {CONV1, BIAS1, CONV2, BIAS2};

static struct workspace maps_of(const struct network *net, char *base) {
    struct workspace work = {.base = base};
    work.a.map1 = cut(&work, 32 * net->pixels1 * sizeof(float));
    work.a.winner1 = cut(&work, 32 * net->height1 * net->width1 * sizeof(int32_t));
    work.a.map2 = cut(&work, 64 * net->cells2 * sizeof(float));
    work.a.winner2 = cut(&work, 64 * net->cells2 * sizeof(int32_t));
    return work;
}

static size_t kept_bytes_of(const struct network *net, char *base, struct kept *kept, long size) {
    struct workspace work = {.base = base};
    long floats = 0;
    for (int i = 0; i < 4; i++)
        floats += parameter_size(net, convolution_parameters[i]);
    kept->count = cut(&work, sizeof(int64_t));
    kept->batch = cut(&work, MOST_KEPT * sizeof(int64_t));
    kept->convolutions = cut(&work, floats * sizeof(float));
    kept->slot = base ? base + work.used : NULL;
    return work.used + size * maps_of(net, NULL).used;
}

/* Whether what is kept is of these images and convolutions. */
static int is_kept(
    const struct network *net, const struct kept *kept, const float *const parameter[], const int64_t *batch, long size
) {
    if (*kept->count != size || memcmp(kept->batch, batch, size * sizeof *batch))
        return 0;
    const float *known = kept->convolutions;
    for (int i = 0; i < 4; i++) {
        const int which = convolution_parameters[i];
        if (memcmp(known, parameter[which], parameter_size(net, which) * sizeof *known))
            return 0;
        known += parameter_size(net, which);
    }
    return 1;
}

static void begin_keeping(
    const struct network *net, struct kept *kept, const float *const parameter[], const int64_t *batch, long size
) {
    float *known = kept->convolutions;
    for (int i = 0; i < 4; i++) {
        const int which = convolution_parameters[i];
        memcpy(known, parameter[which], parameter_size(net, which) * sizeof *known);
        known += parameter_size(net, which);
    }
    memcpy(kept->batch, batch, size * sizeof *batch);
    *kept->count = size;
}

/* Inputs of the lowest trained layer, of the images of one device in one round: the layers below stand still, so they are
   computed once for each. `row` gives the place of each image of a minibatch, below 0 for none. */
struct features {
    uint8_t *is_known; /* of each place */
    char *memory;
    const int64_t *row;
};

static size_t feature_bytes_of(const struct network *net, int layer) {
    const size_t floats[] = {0, 33 * net->pixels1, 64 * net->cells2, net->hidden};
    return floats[layer] * sizeof(float);
}

/* Cuts the memory for the features of so many images; returns the bytes that it takes. */
static size_t features_of(const struct network *net, char *base, struct features *features, int layer, long images) {
    struct workspace work = {.base = base};
    features->is_known = cut(&work, images);
    features->memory = cut(&work, images * feature_bytes_of(net, layer));
    return work.used;
}

/* The input of a layer from a place, or into it if `stores`. */
static void move_features(const struct network *net, struct activations *a, char *place, int layer, int stores) {
    float *const own[] = {NULL, a->map1, a->map2, a->hidden};
    const size_t bytes = feature_bytes_of(net, layer), live = layer == LAYER_CONV2 ? net->pixels1 * sizeof *a->live1 : 0;
    memcpy(stores ? (void *)place : (void *)own[layer], stores ? (void *)own[layer] : (void *)place, bytes - live);
    char *rest = place + bytes - live;
    memcpy(stores ? (void *)rest : (void *)a->live1, stores ? (void *)a->live1 : (void *)rest, live);
}

/* Mean loss over the minibatch; its gradient of what is trained replaces what `gradient` holds, the rest is zero. A probe
   leaves its maps in `kept`. `kept` and `features` may be NULL. */
static double minibatch(
    const struct network *net, const struct instruction_set *set, char *scratch, const float *const parameter[],
    float *const gradient[], const float *x, const int64_t *y, const int64_t *batch, long size, unsigned trained,
    int is_probe, struct kept *kept, struct features *features
) {
    const int keeps = kept && is_probe, uses = kept && !is_probe && is_kept(net, kept, parameter, batch, size);
    const int lowest = lowest_layer(trained);
    int first = uses ? LAYER_FC1 : LAYER_CONV1; /* that some image has to go through */
    if (lowest == LAYER_CONV1 || uses)
        features = NULL;
    if (features) {
        first = lowest;
        for (long i = 0; i < size; i++)
            if (features->row[i] < 0 || !features->is_known[features->row[i]])
                first = LAYER_CONV1;
    }
    struct workspace work = prepared(net, set, scratch, parameter, first, trained);
    if (keeps)
        begin_keeping(net, kept, parameter, batch, size);
    else if (kept)
        *kept->count = 0;
    for (int which = 0; which < NUM_PARAMETERS; which++)
        memset(gradient[which], 0, parameter_size(net, which) * sizeof(float));
    memset(work.g.conv1, 0, (char *)work.a.image - (char *)work.g.conv1);
    work.g.conv2 = gradient[CONV2];
    work.g.bias2 = gradient[BIAS2];
    work.g.bias_fc1 = gradient[BIAS_FC1];
    work.g.fc2 = gradient[FC2];
    work.g.bias_fc2 = gradient[BIAS_FC2];
    double loss = 0.0;
    for (long i = 0; i < size; i++) {
        const long row = features ? features->row[i] : -1;
        char *place = row < 0 ? NULL : features->memory + row * feature_bytes_of(net, lowest);
        const int is_known = place && features->is_known[row];
        if (is_known)
            move_features(net, &work.a, place, lowest, 0);
        if (!is_known || lowest == LAYER_CONV2) /* whose blank cells show in the image */
            load_image(net, &work.a, x + batch[i] * net->channels * net->height * net->width);
        if (keeps || uses) {
            const struct activations maps = maps_of(net, kept->slot + i * maps_of(net, NULL).used).a;
            work.a.map1 = maps.map1;
            work.a.winner1 = maps.winner1;
            work.a.map2 = maps.map2;
            work.a.winner2 = maps.winner2;
        }
        loss += set->one_image(
            net, &work.w, &work.a, &work.g, y[batch[i]], 1.0f / (float)size, is_known ? lowest : first, trained);
        if (place && !is_known) {
            move_features(net, &work.a, place, lowest, 1);
            features->is_known[row] = 1;
        }
    }
    unpack(net, &work, gradient, trained);
    return loss / (double)size;
}

/* The scores of every image. */
static void all_scores(
    const struct network *net, const struct instruction_set *set, char *scratch, const float *const parameter[],
    const float *x, float *score, long size
) {
    struct workspace work = prepared(net, set, scratch, parameter, LAYER_CONV1, 0);
    for (long i = 0; i < size; i++) {
        load_image(net, &work.a, x + i * net->channels * net->height * net->width);
        set->forward(net, &work.w, &work.a);
        memcpy(score + i * net->classes, work.a.score, net->classes * sizeof(float));
    }
}

/* A chunk of devices, each on its own minibatches; all begin with `received` and are added up in their order.

   `stop` are the ends of the minibatches in the list of samples, `last` those of the devices in the list of minibatches;
   `keep` are the prunable weights that each may hold, `weight` is its c_n, `trained` what it trains. Out come `total` and `count` of Eq. (12), the
   `loss` of every minibatch and the pruning error `lost` of every device. */
struct chunk {
    long devices, minibatches, state, prunable, first, rows, parameters;
    const int64_t *stop, *last, *keep, *row, *trained;
    const int64_t *place; /* NULL, or of every sample in its device's features */
    long places;          /* the most of a device */
    const float *received;
    const double *weight;
    double *total, *loss, *lost;
    int64_t *count;
    float rate;
    int classifier;  /* whether the prunable weights all are in the fully connected layers */
    double *spent_s; /* NULL, or CPU-seconds of the probes, and of the gradients and steps, to be added to */
};

/* Integers that `choose` works with. */
static size_t choose_room(long size) {
    return (size_t)(3 * size + 24);
}

static double thread_s(const struct chunk *chunk) {
    struct timespec now = {0};
    if (chunk->spent_s)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void note_spent(const struct chunk *chunk, int what, double since_s) {
    if (chunk->spent_s)
        chunk->spent_s[what] += thread_s(chunk) - since_s;
}

enum { STATES_AT_ONCE = 4, BLOCK = 1024 };

/* Floats from one of several states to the next. */
static long state_stride(const struct chunk *chunk) {
    return (chunk->state + 15) / 16 * 16;
}

/* The states of some devices, in their order; `total` goes through the caches once for all of them. */
static void add_states(
    const struct instruction_set *set, const struct chunk *chunk, const float *const state[], const double *weight,
    int count
) {
    for (long start = 0; start < chunk->state; start += BLOCK)
        for (int i = 0; i < count; i++)
            set->add_state(
                chunk->total + start, state[i] + start, weight[i],
                chunk->state - start < BLOCK ? chunk->state - start : BLOCK);
}

/* What `device_round` does for devices that only choose, take steps of plain SGD and send what they hold: see
   learning/at_once.py. Returns whether all numbers to choose by are finite; if not it has stopped there. `states` has room
   for as many as are added at once, `work` for what `choose` needs and a mask twice. */
static int chunk_of_devices(
    const struct network *net, const struct instruction_set *set, char *scratch, const struct chunk *chunk,
    float *states, float *gradient, const Py_ssize_t *offset, const float *x, const int64_t *y, const int64_t *sample,
    struct kept *kept, char *feature_memory, int32_t *work
) {
    enum { PROBE, TRAINING };
    const long size = chunk->prunable;
    const float *parameter[NUM_PARAMETERS], *received[NUM_PARAMETERS];
    float *slope[NUM_PARAMETERS], *prunable_slope = gradient + chunk->first;
    const float *trained[STATES_AT_ONCE];
    uint8_t *mask = (uint8_t *)(work + choose_room(size)), *tally = mask + size;
    int num_tallied = 0, known_finite = 0;
    memset(tally, 0, size);
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        received[i] = chunk->received + offset[i];
        slope[i] = gradient + offset[i];
    }
    for (long device = 0, next = 0; device < chunk->devices; device++) {
        const int place = (int)(device % STATES_AT_ONCE);
        float *state = states + place * state_stride(chunk), *prunable = state + chunk->first;
        for (int i = 0; i < NUM_PARAMETERS; i++)
            parameter[i] = state + offset[i];
        trained[place] = state;
        const int prunes = chunk->keep[device] < size;
        if (prunes && !known_finite && !set->all_finite(chunk->received + chunk->first, size))
            return 0;
        known_finite |= prunes;
        /* Who prunes nothing reads the received model where it is, and its first step writes the state. */
        const long copied = prunes ? 0 : chunk->parameters;
        memcpy(state + copied, chunk->received + copied, (chunk->state - copied) * sizeof(float));
        const float *from = prunes ? state : chunk->received;
        const unsigned bits = (unsigned)chunk->trained[device];
        struct features features;
        if (chunk->place) {
            features_of(net, feature_memory, &features, lowest_layer(bits), chunk->places);
            memset(features.is_known, 0, chunk->places);
        }
        chunk->lost[device] = 0.0;
        for (int is_probe = prunes; next < chunk->last[device]; is_probe = 0) {
            const int64_t *batch = sample + (next ? chunk->stop[next - 1] : 0);
            const long images = chunk->stop[next] - (batch - sample);
            const int ends_early = is_probe && chunk->classifier;
            double since_s = thread_s(chunk);
            if (chunk->place)
                features.row = chunk->place + (batch - sample);
            chunk->loss[next] = minibatch(
                net, set, scratch, from == state ? parameter : received, slope, x, y, batch, images,
                ends_early ? CLASSIFIER : is_probe ? EVERYTHING : bits, ends_early, images <= MOST_KEPT ? kept : NULL,
                chunk->place && !is_probe ? &features : NULL);
            note_spent(chunk, is_probe ? PROBE : TRAINING, since_s);
            if (is_probe) {
                if (!set->choose(
                        mask, prunable_slope, chunk->received + chunk->first, chunk->rate, 1, size, chunk->row,
                        chunk->rows, chunk->keep[device], work))
                    return 0;
                chunk->lost[device] = set->hold(prunable, mask, size);
                continue; /* to the same minibatch */
            }
            since_s = thread_s(chunk);
            if (prunes) {
                const long behind = chunk->first + size;
                set->add_scaled(state, state, gradient, -chunk->rate, chunk->first);
                set->masked_step(prunable, prunable_slope, mask, -chunk->rate, size);
                set->add_scaled(
                    state + behind, state + behind, gradient + behind, -chunk->rate, chunk->parameters - behind);
            } else {
                set->add_scaled(state, from, gradient, -chunk->rate, chunk->parameters);
                from = state;
            }
            note_spent(chunk, TRAINING, since_s);
            next++;
        }
        if (place == STATES_AT_ONCE - 1 || device + 1 == chunk->devices)
            add_states(set, chunk, trained, chunk->weight + device - place, place + 1);
        if (prunes) {
            set->tally(tally, mask, size);
            num_tallied++;
        }
        if (num_tallied == UINT8_MAX || (num_tallied && device + 1 == chunk->devices)) {
            set->add_counts(chunk->count, tally, size);
            memset(tally, 0, size);
            num_tallied = 0;
        }
    }
    return 1;
}

/* ---- Python ---- */

static PyObject *instruction_sets(PyObject *self, PyObject *nothing) {
    struct instruction_set sets[4];
    int count = usable_sets(sets);
    PyObject *names = PyList_New(count);
    for (int i = 0; names && i < count; i++)
        PyList_SetItem(names, i, PyUnicode_FromString(sets[i].name));
    return names;
}

/* The network from (channels, height, width, hidden, classes); every index into it then fits 31 bits. */
static int read_network(PyObject *shape, struct network *net) {
    long channels, height, width, hidden, classes;
    if (!PyArg_ParseTuple(shape, "lllll", &channels, &height, &width, &hidden, &classes))
        return 0;
    if (channels < 1 || height < 4 || width < 4 || hidden < 1 || classes < 1 || channels > 64 || height > 1024 ||
        width > 1024 || hidden > 4096 || classes > 65536) {
        PyErr_SetString(PyExc_ValueError, "the network's shape is out of range");
        return 0;
    }
    *net = network_of(channels, height, width, hidden, classes);
    return 1;
}

static PyObject *scratch_bytes(PyObject *self, PyObject *shape) {
    struct network net;
    return read_network(shape, &net) ? PyLong_FromSize_t(workspace_of(&net, NULL).used + 64) : NULL;
}

static PyObject *feature_bytes(PyObject *self, PyObject *arguments) {
    PyObject *shape;
    Py_ssize_t images;
    int trained;
    struct network net;
    struct features features;
    if (!PyArg_ParseTuple(arguments, "O!in", &PyTuple_Type, &shape, &trained, &images) || !read_network(shape, &net))
        return NULL;
    if (images < 0 || images > INT32_MAX)
        images = 0;
    return PyLong_FromSize_t(features_of(&net, NULL, &features, lowest_layer((unsigned)trained), (long)images) + 64);
}

static PyObject *kept_bytes(PyObject *self, PyObject *arguments) {
    PyObject *shape;
    Py_ssize_t size;
    struct network net;
    struct kept kept;
    if (!PyArg_ParseTuple(arguments, "O!n", &PyTuple_Type, &shape, &size) || !read_network(shape, &net))
        return NULL;
    if (size < 0 || size > MOST_KEPT)
        return PyLong_FromSize_t(0);
    return PyLong_FromSize_t(kept_bytes_of(&net, NULL, &kept, (long)size) + 64);
}

enum { STATE, GRADIENT, X, Y, BATCH, SCRATCH, KEPT, NUM_BUFFERS, FEATURES = NUM_BUFFERS, PLACE };

/* One sentence on what is wrong with the arguments, or NULL. So no call touches memory outside its arrays, as long as
   they do not overlap and nobody changes them meanwhile. */
static const char *trouble(
    const struct network *net, const Py_buffer *buffer, int count, const Py_ssize_t *offset,
    const struct instruction_set *set
) {
    const Py_ssize_t width[] = {4, 4, 4, 8, 8, 1, 1, 1, 8};
    for (int i = 0; i < count; i++)
        if (buffer[i].itemsize != width[i])
            return "an array has the wrong type";
    if (!set->one_image)
        return "this CPU has no such instruction set";
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        const Py_ssize_t size = parameter_size(net, i);
        if (offset[i] < 0 || offset[i] > buffer[STATE].len / 4 - size || offset[i] > buffer[GRADIENT].len / 4 - size)
            return "a parameter lies outside the flat model";
    }
    const Py_ssize_t samples = buffer[Y].len / 8, image = net->channels * net->height * net->width;
    const int64_t *y = buffer[Y].buf, *batch = buffer[BATCH].buf;
    if (buffer[X].len / 4 != samples * image)
        return "images and labels do not go together";
    if (buffer[BATCH].len == 0)
        return "the minibatch is empty";
    for (Py_ssize_t i = 0; i < buffer[BATCH].len / 8; i++) {
        if (batch[i] < 0 || batch[i] >= samples)
            return "the minibatch names a sample that does not exist";
        if (y[batch[i]] < 0 || y[batch[i]] >= net->classes)
            return "a label is not one of the classes";
    }
    if (buffer[SCRATCH].len < (Py_ssize_t)workspace_of(net, NULL).used + 64)
        return "the scratch memory is too small";
    return NULL;
}

/* As `trouble`, of the memory for features and the places of so many samples in it. */
static const char *feature_trouble(
    const struct network *net, const Py_buffer *memory, const Py_buffer *place, Py_ssize_t samples, Py_ssize_t images,
    int lowest
) {
    struct features features;
    if (place->len / 8 != samples)
        return "features and minibatch do not go together";
    if (images < 0 || images > INT32_MAX ||
        memory->len < (Py_ssize_t)features_of(net, NULL, &features, lowest, (long)images) + 64)
        return "the memory for features is too small";
    for (Py_ssize_t i = 0; i < samples; i++)
        if (((const int64_t *)place->buf)[i] >= images)
            return "a place of the features does not exist";
    return NULL;
}

static PyObject *gradient(PyObject *self, PyObject *arguments) {
    PyObject *shape, *array[NUM_BUFFERS + 2] = {NULL};
    Py_ssize_t offset[NUM_PARAMETERS], images = 0;
    const char *name;
    int is_probe = 0, trained = EVERYTHING;
    struct network net;
    if (!PyArg_ParseTuple(
            arguments, "sO!(nnnnnnnn)OOOOOO|OpiOOn", &name, &PyTuple_Type, &shape, &offset[0], &offset[1], &offset[2],
            &offset[3], &offset[4], &offset[5], &offset[6], &offset[7], &array[0], &array[1], &array[2], &array[3],
            &array[4], &array[5], &array[6], &is_probe, &trained, &array[FEATURES], &array[PLACE], &images) ||
        !read_network(shape, &net))
        return NULL;
    if (is_probe)
        trained = CLASSIFIER;
    const struct instruction_set set = set_named(name);

    Py_buffer buffer[NUM_BUFFERS + 2];
    const int has_features = array[FEATURES] && array[PLACE];
    const int count = has_features ? PLACE + 1 : array[KEPT] ? NUM_BUFFERS : KEPT;
    int open = 0;
    for (; open < count; open++) {
        int writable =
            open == GRADIENT || open == SCRATCH || open == KEPT || open == FEATURES ? PyBUF_WRITABLE : 0;
        if (PyObject_GetBuffer(array[open], &buffer[open], PyBUF_C_CONTIGUOUS | writable))
            break;
    }
    double loss = 0.0;
    if (open == count) {
        const char *problem = trouble(&net, buffer, count, offset, &set);
        if (!problem && has_features)
            problem = feature_trouble(
                &net, &buffer[FEATURES], &buffer[PLACE], buffer[BATCH].len / 8, images, lowest_layer((unsigned)trained));
        if (problem) {
            PyErr_SetString(PyExc_ValueError, problem);
        } else {
            const float *parameter[NUM_PARAMETERS];
            float *slope[NUM_PARAMETERS];
            for (int i = 0; i < NUM_PARAMETERS; i++) {
                parameter[i] = (const float *)buffer[STATE].buf + offset[i];
                slope[i] = (float *)buffer[GRADIENT].buf + offset[i];
            }
            char *scratch = (char *)(((uintptr_t)buffer[SCRATCH].buf + 63) / 64 * 64);
            const Py_ssize_t size = buffer[BATCH].len / 8;
            struct kept kept;
            int keeps = 0; /* only where there is room */
            if (array[KEPT] && size <= MOST_KEPT) {
                char *base = (char *)(((uintptr_t)buffer[KEPT].buf + 63) / 64 * 64);
                keeps = buffer[KEPT].len >= (Py_ssize_t)kept_bytes_of(&net, base, &kept, (long)size) + 64;
            }
            struct features features;
            if (has_features) {
                char *base = (char *)(((uintptr_t)buffer[FEATURES].buf + 63) / 64 * 64);
                features_of(&net, base, &features, lowest_layer((unsigned)trained), (long)images);
                features.row = buffer[PLACE].buf;
            }
            Py_BEGIN_ALLOW_THREADS
            loss = minibatch(
                &net, &set, scratch, parameter, slope, buffer[X].buf, buffer[Y].buf, buffer[BATCH].buf,
                (long)size, (unsigned)trained, is_probe, keeps ? &kept : NULL, has_features ? &features : NULL);
            Py_END_ALLOW_THREADS
        }
    }
    while (open--)
        PyBuffer_Release(&buffer[open]);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(loss);
}

/* Opens C-contiguous buffers of the given item sizes; those in `writable`, a bit for each, to be written. Returns 0
   with a Python error set, and all closed, if one of them is not so. */
static int open_all(PyObject *const array[], Py_buffer buffer[], const Py_ssize_t itemsize[], int count, int writable) {
    for (int i = 0; i < count; i++) {
        int trouble =
            PyObject_GetBuffer(array[i], &buffer[i], PyBUF_C_CONTIGUOUS | (writable >> i & 1 ? PyBUF_WRITABLE : 0));
        if (!trouble && buffer[i].itemsize != itemsize[i]) {
            PyErr_SetString(PyExc_ValueError, "an array has the wrong type");
            trouble = 1;
            i++;
        }
        if (trouble) {
            while (i--)
                PyBuffer_Release(&buffer[i]);
            return 0;
        }
    }
    return 1;
}

static PyObject *closed(Py_buffer buffer[], int count, const char *problem) {
    while (count--)
        PyBuffer_Release(&buffer[count]);
    if (problem)
        PyErr_SetString(PyExc_ValueError, problem);
    return problem ? NULL : Py_NewRef(Py_None);
}

static const char NO_SET[] = "this CPU has no such instruction set", LENGTHS[] = "the arrays' lengths do not go together";

static PyObject *scores(PyObject *self, PyObject *arguments) {
    PyObject *shape, *array[4];
    Py_ssize_t offset[NUM_PARAMETERS];
    const char *name, *problem = NULL;
    struct network net;
    if (!PyArg_ParseTuple(
            arguments, "sO!(nnnnnnnn)OOOO", &name, &PyTuple_Type, &shape, &offset[0], &offset[1], &offset[2],
            &offset[3], &offset[4], &offset[5], &offset[6], &offset[7], &array[0], &array[1], &array[2], &array[3]) ||
        !read_network(shape, &net))
        return NULL;
    const struct instruction_set set = set_named(name);
    Py_buffer buffer[4]; /* state, images, scores, scratch */
    if (!open_all(array, buffer, (const Py_ssize_t[]){4, 4, 4, 1}, 4, 4 | 8))
        return NULL;
    const float *parameter[NUM_PARAMETERS];
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        parameter[i] = (const float *)buffer[0].buf + offset[i];
        if (offset[i] < 0 || offset[i] > buffer[0].len / 4 - parameter_size(&net, i))
            problem = "a parameter lies outside the flat model";
    }
    const Py_ssize_t size = buffer[2].len / 4 / net.classes;
    if (buffer[2].len / 4 != size * net.classes || buffer[1].len / 4 != size * net.channels * net.height * net.width)
        problem = "images and scores do not go together";
    if (buffer[3].len < (Py_ssize_t)workspace_of(&net, NULL).used + 64)
        problem = "the scratch memory is too small";
    if (!set.forward)
        problem = NO_SET;
    if (!problem) {
        char *scratch = (char *)(((uintptr_t)buffer[3].buf + 63) / 64 * 64);
        Py_BEGIN_ALLOW_THREADS
        all_scores(&net, &set, scratch, parameter, buffer[1].buf, buffer[2].buf, (long)size);
        Py_END_ALLOW_THREADS
    }
    return closed(buffer, 4, problem);
}

static PyObject *add_scaled(PyObject *self, PyObject *arguments) {
    PyObject *array[3] = {NULL, NULL, NULL};
    const char *name;
    double factor;
    if (!PyArg_ParseTuple(arguments, "sOOd|O", &name, &array[0], &array[1], &factor, &array[2]))
        return NULL;
    const struct instruction_set set = set_named(name);
    const int count = array[2] ? 3 : 2;
    Py_buffer buffer[3]; /* target, values, source */
    if (!open_all(array, buffer, (const Py_ssize_t[]){4, 4, 4}, count, 1))
        return NULL;
    const int fits = buffer[0].len == buffer[1].len && buffer[0].len == buffer[count == 3 ? 2 : 0].len;
    const char *problem = !set.add_scaled ? NO_SET : !fits ? LENGTHS : NULL;
    if (!problem)
        set.add_scaled(
            buffer[0].buf, buffer[count == 3 ? 2 : 0].buf, buffer[1].buf, (float)factor, buffer[0].len / 4);
    return closed(buffer, count, problem);
}

/* Memory that is kept from call to call; calls that hold the interpreter's lock take turns in it. */
static void *kept_memory(Py_ssize_t bytes) {
    static void *piece;
    static Py_ssize_t room;
    if (bytes > room) {
        void *larger = PyMem_Realloc(piece, (size_t)bytes);
        if (!larger)
            return NULL;
        piece = larger;
        room = bytes;
    }
    return piece;
}

static const char NO_MEMORY[] = "there is no memory left";

static const char NO_ROW[] = "there must be a row from the start, and a weight to keep for each";

/* As `trouble`, of where the rows of the prunable weights begin. */
static const char *row_trouble(const int64_t *row, Py_ssize_t rows, Py_ssize_t size) {
    if (rows < 1 || row[0] != 0)
        return NO_ROW;
    for (Py_ssize_t i = 0; i < rows; i++)
        if (row[i] >= (i + 1 < rows ? row[i + 1] : size))
            return "a row is empty";
    return NULL;
}

static PyObject *choose(PyObject *self, PyObject *arguments) {
    PyObject *array[4];
    const char *name;
    Py_ssize_t keep;
    double factor = 0.0;
    if (!PyArg_ParseTuple(arguments, "sOOOOn|d", &name, &array[0], &array[1], &array[2], &array[3], &keep, &factor))
        return NULL;
    const struct instruction_set set = set_named(name);
    Py_buffer buffer[4]; /* mask, values, ties, starts of rows */
    if (!open_all(array, buffer, (const Py_ssize_t[]){1, 4, 4, 8}, 4, 1))
        return NULL;
    const Py_ssize_t size = buffer[0].len, rows = buffer[3].len / 8;
    const int64_t *row = buffer[3].buf;
    const char *problem = !set.choose ? NO_SET : NULL;
    if (buffer[1].len / 4 != size || buffer[2].len / 4 != size || size < 1 || size > INT32_MAX / 4)
        problem = LENGTHS;
    if (keep < rows || keep > size)
        problem = NO_ROW;
    if (!problem)
        problem = row_trouble(row, rows, size);
    int32_t *work = problem ? NULL : kept_memory((Py_ssize_t)(choose_room(size) * sizeof(int32_t)));
    int finite = 0;
    if (!problem && !work)
        problem = NO_MEMORY;
    if (!problem)
        finite = set.all_finite(buffer[2].buf, size) && set.choose(
            buffer[0].buf, buffer[1].buf, buffer[2].buf, (float)factor, factor > 0.0, size, row, rows, keep, work);
    PyObject *none = closed(buffer, 4, problem);
    if (!none)
        return NULL;
    Py_DecRef(none);
    return PyBool_FromLong(finite);
}

enum {
    RECEIVED = NUM_BUFFERS,
    STOP,
    LAST,
    KEEP,
    ROW,
    WEIGHT,
    TOTAL,
    COUNT,
    LOSS,
    LOST,
    TRAINED,
    CHUNK_FEATURES,
    CHUNK_PLACE,
    NUM_CHUNK_BUFFERS
};

/* As `trouble`, of what a chunk has beside a minibatch. */
static const char *chunk_trouble(const struct network *net, const struct chunk *chunk, const Py_buffer *buffer) {
    const long size = chunk->prunable, samples = buffer[BATCH].len / 8;
    if (buffer[STATE].len != buffer[RECEIVED].len || buffer[TOTAL].len / 8 != chunk->state ||
        chunk->parameters > chunk->state || chunk->first < 0 || chunk->first > chunk->parameters - size ||
        size > INT32_MAX / 4)
        return LENGTHS;
    if (buffer[KEEP].len != buffer[LAST].len || buffer[WEIGHT].len != buffer[LAST].len ||
        buffer[LOST].len != buffer[LAST].len || buffer[LOSS].len != buffer[STOP].len ||
        buffer[TRAINED].len != buffer[LAST].len)
        return LENGTHS;
    for (long i = 0; i < chunk->minibatches; i++)
        if (chunk->stop[i] <= (i ? chunk->stop[i - 1] : 0) || chunk->stop[i] > samples)
            return "a minibatch is empty or ends beyond the samples";
    for (long i = 0; i < chunk->devices; i++) {
        if (chunk->last[i] <= (i ? chunk->last[i - 1] : 0) || chunk->last[i] > chunk->minibatches)
            return "a device has no minibatches, or more than there are";
        if (chunk->keep[i] < chunk->rows)
            return NO_ROW;
        if (chunk->trained[i] < 1 || chunk->trained[i] > EVERYTHING)
            return "a device trains nothing, or something else";
        const int lowest = lowest_layer((unsigned)chunk->trained[i]);
        const Py_buffer *features = &buffer[CHUNK_FEATURES], *place = &buffer[CHUNK_PLACE];
        const char *problem = NULL;
        if (chunk->place)
            problem = feature_trouble(net, features, place, samples, chunk->places, lowest);
        if (problem)
            return problem;
    }
    return row_trouble(chunk->row, chunk->rows, size);
}

static PyObject *train_chunk(PyObject *self, PyObject *arguments) {
    PyObject *shape, *spent, *array[NUM_CHUNK_BUFFERS];
    Py_ssize_t offset[NUM_PARAMETERS], first, places;
    const char *name;
    double rate;
    int classifier;
    struct network net;
    if (!PyArg_ParseTuple(
            arguments, "sO!(nnnnnnnn)OOOOOOOOOOOOOOOOOOOOnndpO", &name, &PyTuple_Type, &shape, &offset[0], &offset[1],
            &offset[2], &offset[3], &offset[4], &offset[5], &offset[6], &offset[7], &array[STATE], &array[GRADIENT],
            &array[X], &array[Y], &array[BATCH], &array[SCRATCH], &array[KEPT], &array[RECEIVED], &array[STOP],
            &array[LAST], &array[KEEP], &array[ROW], &array[WEIGHT], &array[TOTAL], &array[COUNT], &array[LOSS],
            &array[LOST], &array[TRAINED], &array[CHUNK_FEATURES], &array[CHUNK_PLACE], &places, &first, &rate,
            &classifier, &spent) ||
        !read_network(shape, &net))
        return NULL;
    const struct instruction_set set = set_named(name);
    const Py_ssize_t width[NUM_CHUNK_BUFFERS + 1] = {
        4, 4, 4, 8, 8, 1, 1, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 1, 8, 8};
    const int written = 1 << STATE | 1 << GRADIENT | 1 << SCRATCH | 1 << KEPT | 1 << TOTAL | 1 << COUNT | 1 << LOSS |
                        1 << LOST | 1 << CHUNK_FEATURES | 1 << NUM_CHUNK_BUFFERS;
    const int count = NUM_CHUNK_BUFFERS + (spent != Py_None);
    PyObject *all[NUM_CHUNK_BUFFERS + 1];
    memcpy(all, array, sizeof array);
    all[NUM_CHUNK_BUFFERS] = spent;
    Py_buffer buffer[NUM_CHUNK_BUFFERS + 1];
    if (!open_all(all, buffer, width, count, written))
        return NULL;
    const struct chunk chunk = {
        .devices = buffer[LAST].len / 8,
        .minibatches = buffer[STOP].len / 8,
        .state = buffer[STATE].len / 4,
        .prunable = buffer[COUNT].len / 8,
        .first = first,
        .rows = buffer[ROW].len / 8,
        .parameters = buffer[GRADIENT].len / 4,
        .stop = buffer[STOP].buf,
        .last = buffer[LAST].buf,
        .keep = buffer[KEEP].buf,
        .row = buffer[ROW].buf,
        .trained = buffer[TRAINED].buf,
        .place = buffer[CHUNK_PLACE].len ? buffer[CHUNK_PLACE].buf : NULL,
        .places = places,
        .received = buffer[RECEIVED].buf,
        .weight = buffer[WEIGHT].buf,
        .total = buffer[TOTAL].buf,
        .loss = buffer[LOSS].buf,
        .lost = buffer[LOST].buf,
        .count = buffer[COUNT].buf,
        .rate = (float)rate,
        .classifier = classifier,
        .spent_s = spent == Py_None ? NULL : buffer[NUM_CHUNK_BUFFERS].buf,
    };
    const char *problem = trouble(&net, buffer, NUM_BUFFERS, offset, &set);
    if (!problem)
        problem = chunk_trouble(&net, &chunk, buffer);
    if (!problem && chunk.spent_s && buffer[NUM_CHUNK_BUFFERS].len != 16)
        problem = LENGTHS;
    if (!problem && !(chunk.rate > 0.0f))
        problem = "the learning rate must be positive";
    const size_t room = choose_room(chunk.prunable) * sizeof(int32_t) + 2 * (size_t)chunk.prunable;
    const size_t states = STATES_AT_ONCE * (size_t)state_stride(&chunk) * sizeof(float) + 64;
    char *memory = problem ? NULL : PyMem_Malloc(states + room);
    if (!problem && !memory)
        problem = NO_MEMORY;
    int finite = 0;
    if (!problem) {
        struct kept kept;
        char *scratch = (char *)(((uintptr_t)buffer[SCRATCH].buf + 63) / 64 * 64);
        char *base = (char *)(((uintptr_t)buffer[KEPT].buf + 63) / 64 * 64);
        long most = 0;
        for (long i = 0; i < chunk.minibatches; i++) {
            const long images = chunk.stop[i] - (i ? chunk.stop[i - 1] : 0);
            most = images > most && images <= MOST_KEPT ? images : most;
        }
        const int keeps = buffer[KEPT].len >= (Py_ssize_t)kept_bytes_of(&net, base, &kept, most) + 64;
        Py_BEGIN_ALLOW_THREADS
        finite = chunk_of_devices(
            &net, &set, scratch, &chunk, (float *)(((uintptr_t)memory + 63) / 64 * 64), buffer[GRADIENT].buf, offset,
            buffer[X].buf, buffer[Y].buf, buffer[BATCH].buf, keeps ? &kept : NULL,
            (char *)(((uintptr_t)buffer[CHUNK_FEATURES].buf + 63) / 64 * 64), (int32_t *)(memory + states));
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(memory);
    PyObject *none = closed(buffer, count, problem);
    if (!none)
        return NULL;
    Py_DecRef(none);
    return PyBool_FromLong(finite);
}

static PyObject *hold(PyObject *self, PyObject *arguments) {
    PyObject *array[2];
    const char *name;
    if (!PyArg_ParseTuple(arguments, "sOO", &name, &array[0], &array[1]))
        return NULL;
    const struct instruction_set set = set_named(name);
    Py_buffer buffer[2]; /* weights, mask */
    if (!open_all(array, buffer, (const Py_ssize_t[]){4, 1}, 2, 1))
        return NULL;
    const Py_ssize_t size = buffer[1].len;
    const char *problem = !set.hold ? NO_SET : buffer[0].len / 4 != size ? LENGTHS : NULL;
    const double lost = problem ? 0.0 : set.hold(buffer[0].buf, buffer[1].buf, size);
    PyObject *none = closed(buffer, 2, problem);
    if (!none)
        return NULL;
    Py_DecRef(none);
    return PyFloat_FromDouble(lost);
}

static PyObject *multiply(PyObject *self, PyObject *arguments) {
    PyObject *array[2];
    const char *name;
    if (!PyArg_ParseTuple(arguments, "sOO", &name, &array[0], &array[1]))
        return NULL;
    const struct instruction_set set = set_named(name);
    Py_buffer buffer[2];
    if (!open_all(array, buffer, (const Py_ssize_t[]){4, 1}, 2, 1))
        return NULL;
    const char *problem = !set.multiply ? NO_SET : buffer[0].len / 4 != buffer[1].len ? LENGTHS : NULL;
    if (!problem)
        set.multiply(buffer[0].buf, buffer[1].buf, buffer[1].len);
    return closed(buffer, 2, problem);
}

static PyObject *add_state(PyObject *self, PyObject *arguments) {
    PyObject *array[2];
    const char *name;
    double factor;
    if (!PyArg_ParseTuple(arguments, "sOOd", &name, &array[0], &array[1], &factor))
        return NULL;
    const struct instruction_set set = set_named(name);
    Py_buffer buffer[2];
    if (!open_all(array, buffer, (const Py_ssize_t[]){8, 4}, 2, 1))
        return NULL;
    const char *problem = !set.add_state ? NO_SET : buffer[0].len / 8 != buffer[1].len / 4 ? LENGTHS : NULL;
    if (!problem)
        set.add_state(buffer[0].buf, buffer[1].buf, factor, buffer[1].len / 4);
    return closed(buffer, 2, problem);
}

static PyObject *add_counts(PyObject *self, PyObject *arguments) {
    PyObject *array[2];
    const char *name;
    if (!PyArg_ParseTuple(arguments, "sOO", &name, &array[0], &array[1]))
        return NULL;
    const struct instruction_set set = set_named(name);
    Py_buffer buffer[2];
    if (!open_all(array, buffer, (const Py_ssize_t[]){8, 1}, 2, 1))
        return NULL;
    const char *problem = !set.add_counts ? NO_SET : buffer[0].len / 8 != buffer[1].len ? LENGTHS : NULL;
    if (!problem)
        set.add_counts(buffer[0].buf, buffer[1].buf, buffer[1].len);
    return closed(buffer, 2, problem);
}

static PyMethodDef methods[] = {
    {"instruction_sets", instruction_sets, METH_NOARGS, "Those of this CPU that the kernel can use, fastest first."},
    {"scratch_bytes", scratch_bytes, METH_VARARGS, "(channels, height, width, hidden, classes) -> bytes of memory."},
    {"gradient", gradient, METH_VARARGS,
     "(instruction set, shape, offsets, state, gradient, x, y, batch, scratch[, kept, is a probe, trained, "
     "features, places, images]) -> mean loss of the minibatch."},
    {"feature_bytes", feature_bytes, METH_VARARGS,
     "(shape, trained, images) -> bytes of memory for the inputs of the lowest trained layer; begins all zero."},
    {"kept_bytes", kept_bytes, METH_VARARGS,
     "(shape, images) -> bytes of memory in which a gradient of the classifier leaves its maps; 0 if there are too many."},
    {"add_scaled", add_scaled, METH_VARARGS,
     "(instruction set, target, values, factor[, source]): target = source + factor * values, each entry rounded once; "
     "the source is the target if there is none."},
    {"scores", scores, METH_VARARGS, "(instruction set, shape, offsets, state, x, scores, scratch): of every image."},
    {"choose", choose, METH_VARARGS,
     "(instruction set, mask, values, ties, starts of rows, keep[, factor]) -> whether all are finite, else there is no "
     "mask. With a factor, values rank by factor * |value| and ties by |tie|."},
    {"train_chunk", train_chunk, METH_VARARGS,
     "(instruction set, shape, offsets, state, gradient, x, y, samples, scratch, kept, received, ends of minibatches, "
     "last minibatches, keep, starts of rows, weights, total, counts, losses, lost, trained, features, places, images, first "
     "prunable, learning rate, classifier alone, spent seconds or None) -> whether all numbers to choose by are finite, else sums are unfinished."},
    {"hold", hold, METH_VARARGS, "(instruction set, weights, mask): zeroes the rest -> the sum of its squares."},
    {"multiply", multiply, METH_VARARGS, "(instruction set, values, mask): values *= mask."},
    {"add_state", add_state, METH_VARARGS,
     "(instruction set, total, state, factor): total += factor * state in double precision, rounded twice."},
    {"add_counts", add_counts, METH_VARARGS, "(instruction set, counts, mask): counts += mask."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_paper_cnn", NULL, 0, methods, NULL, NULL, NULL, NULL};

#ifndef KERNEL_SOURCES  // what it is built from, said by setup.py
#define KERNEL_SOURCES "unknown"
#endif

PyMODINIT_FUNC PyInit__paper_cnn(void) {
    find_set_bits();
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddStringConstant(made, "sources", KERNEL_SOURCES) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
