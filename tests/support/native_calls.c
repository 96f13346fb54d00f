/* Calls the functions of the native kernel without Python: reads calls from standard input and writes to standard output
   what each returned and its arrays as it left them. So a build for another processor can be run under an emulator.

   It includes the kernel's own source. The part for Python is compiled too, but nothing calls it, and the linker removes it.

   A call is its name in 16 bytes, the number of its integers and they, of its doubles and they, of its arrays and, for each,
   its bytes and its contents; every number has 8 bytes. Arguments are in the order of the Python function, by kind. */

#include "paper_cnn.c"
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 32 };

struct call {
    char name[16];
    int64_t num_integers, integer[MOST], num_doubles, num_arrays, bytes[MOST];
    double number[MOST];
    void *array[MOST];
};

static void give_up(const char *why) {
    fprintf(stderr, "native_calls: %s\n", why);
    exit(1);
}

static void take(void *to, size_t bytes) {
    if (bytes && fread(to, bytes, 1, stdin) != 1)
        give_up("a call ends early");
}

static int64_t take_count(void) {
    int64_t count;
    take(&count, sizeof count);
    if (count < 0 || count > MOST)
        give_up("a call has too many arguments");
    return count;
}

/* The next call; 0 where there is none. */
static int take_call(struct call *call) {
    if (fread(call->name, sizeof call->name, 1, stdin) != 1)
        return 0;
    call->num_integers = take_count();
    take(call->integer, (size_t)call->num_integers * 8);
    call->num_doubles = take_count();
    take(call->number, (size_t)call->num_doubles * 8);
    call->num_arrays = take_count();
    for (int i = 0; i < call->num_arrays; i++) {
        take(&call->bytes[i], 8);
        call->array[i] = malloc((size_t)call->bytes[i] + 64);
        if (!call->array[i])
            give_up("there is no memory left");
        take(call->array[i], (size_t)call->bytes[i]);
    }
    return 1;
}

static struct network network_in(const struct call *call) {
    const int64_t *size = call->integer;
    return network_of(size[0], size[1], size[2], size[3], size[4]);
}

static char *aligned(void *memory) {
    return (char *)(((uintptr_t)memory + 63) / 64 * 64);
}

/* shape, offsets, [probe, trained]; state, gradient, x, y, batch, scratch, kept. Nothing is kept: the bits must
   be those of a call that begins where another one ended. */
static double call_gradient(const struct call *call, const struct instruction_set *set) {
    const struct network net = network_in(call);
    const float *parameter[NUM_PARAMETERS];
    float *slope[NUM_PARAMETERS];
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        parameter[i] = (const float *)call->array[STATE] + call->integer[5 + i];
        slope[i] = (float *)call->array[GRADIENT] + call->integer[5 + i];
    }
    const int is_probe = call->num_integers > 13 && call->integer[13];
    const unsigned trained =
        is_probe ? CLASSIFIER : call->num_integers > 14 ? (unsigned)call->integer[14] : EVERYTHING;
    return minibatch(
        &net, set, aligned(call->array[SCRATCH]), parameter, slope, call->array[X], call->array[Y], call->array[BATCH],
        call->bytes[BATCH] / 8, trained, 0, NULL, NULL);
}

/* shape, offsets; state, x, scores, scratch. */
static double call_scores(const struct call *call, const struct instruction_set *set) {
    const struct network net = network_in(call);
    const float *parameter[NUM_PARAMETERS];
    for (int i = 0; i < NUM_PARAMETERS; i++)
        parameter[i] = (const float *)call->array[0] + call->integer[5 + i];
    all_scores(
        &net, set, aligned(call->array[3]), parameter, call->array[1], call->array[2],
        call->bytes[2] / 4 / net.classes);
    return 0.0;
}

/* shape, offsets, places, first prunable, classifier; learning rate; the arrays in the order of their enumeration. */
static double call_train_chunk(const struct call *call, const struct instruction_set *set) {
    const struct network net = network_in(call);
    Py_ssize_t offset[NUM_PARAMETERS];
    for (int i = 0; i < NUM_PARAMETERS; i++)
        offset[i] = call->integer[5 + i];
    void *const *array = call->array;
    const int64_t *bytes = call->bytes;
    const struct chunk chunk = {
        .devices = bytes[LAST] / 8,
        .minibatches = bytes[STOP] / 8,
        .state = bytes[STATE] / 4,
        .prunable = bytes[COUNT] / 8,
        .first = call->integer[14],
        .rows = bytes[ROW] / 8,
        .parameters = bytes[GRADIENT] / 4,
        .stop = array[STOP],
        .last = array[LAST],
        .keep = array[KEEP],
        .row = array[ROW],
        .trained = array[TRAINED],
        .place = bytes[CHUNK_PLACE] ? array[CHUNK_PLACE] : NULL,
        .places = call->integer[13],
        .received = array[RECEIVED],
        .weight = array[WEIGHT],
        .total = array[TOTAL],
        .loss = array[LOSS],
        .lost = array[LOST],
        .count = array[COUNT],
        .rate = (float)call->number[0],
        .classifier = (int)call->integer[15],
    };
    const size_t states = STATES_AT_ONCE * (size_t)state_stride(&chunk) * sizeof(float) + 64;
    char *memory = malloc(states + choose_room(chunk.prunable) * sizeof(int32_t) + 2 * (size_t)chunk.prunable);
    if (!memory)
        give_up("there is no memory left");
    struct kept kept;
    kept_bytes_of(&net, aligned(array[KEPT]), &kept, 0);
    const int finite = chunk_of_devices(
        &net, set, aligned(array[SCRATCH]), &chunk, (float *)aligned(memory), array[GRADIENT], offset, array[X],
        array[Y], array[BATCH], bytes[KEPT] ? &kept : NULL, aligned(array[CHUNK_FEATURES]), (int32_t *)(memory + states));
    free(memory);
    return finite;
}

/* keep; [factor]; mask, values, ties, starts of rows. */
static double call_choose(const struct call *call, const struct instruction_set *set) {
    const long size = call->bytes[0];
    const double factor = call->num_doubles ? call->number[0] : 0.0;
    int32_t *work = malloc(choose_room(size) * sizeof(int32_t));
    if (!work)
        give_up("there is no memory left");
    const int finite = set->all_finite(call->array[2], size) && set->choose(
        call->array[0], call->array[1], call->array[2], (float)factor, factor > 0.0, size, call->array[3],
        call->bytes[3] / 8, call->integer[0], work);
    free(work);
    return finite;
}

static double answer(const struct call *call, const struct instruction_set *set) {
    const char *name = call->name;
    void *const *array = call->array;
    if (!strcmp(name, "gradient"))
        return call_gradient(call, set);
    if (!strcmp(name, "scores"))
        return call_scores(call, set);
    if (!strcmp(name, "train_chunk"))
        return call_train_chunk(call, set);
    if (!strcmp(name, "choose"))
        return call_choose(call, set);
    if (!strcmp(name, "hold"))
        return set->hold(array[0], array[1], call->bytes[1]);
    if (!strcmp(name, "multiply"))
        set->multiply(array[0], array[1], call->bytes[1]);
    else if (!strcmp(name, "add_scaled"))
        set->add_scaled(
            array[0], array[call->num_arrays > 2 ? 2 : 0], array[1], (float)call->number[0], call->bytes[0] / 4);
    else if (!strcmp(name, "add_state"))
        set->add_state(array[0], array[1], call->number[0], call->bytes[1] / 4);
    else if (!strcmp(name, "add_counts"))
        set->add_counts(array[0], array[1], call->bytes[1]);
    else
        give_up("a function is not known");
    return 0.0;
}

int main(void) {
    struct instruction_set sets[4];
    if (!usable_sets(sets))
        give_up("this CPU has no instruction set that the kernel knows");
    find_set_bits();
    struct call call;
    while (take_call(&call)) {
        const double returned = answer(&call, &sets[0]);
        fwrite(&returned, sizeof returned, 1, stdout);
        for (int i = 0; i < call.num_arrays; i++) {
            fwrite(call.array[i], (size_t)call.bytes[i], 1, stdout);
            free(call.array[i]);
        }
    }
    return fflush(stdout) ? 1 : 0;
}
