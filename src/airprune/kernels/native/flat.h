/* What a device does with flat vectors beside training: choose the weights to keep, hold them, add itself to a sum.

   Included after paper_cnn.h, once per instruction set, with NAME and LANES set. Results are those of the same steps in
   numpy to the bit. */

#define lanes NAME(lanes)
#define loose_lanes NAME(loose_lanes)
typedef int loose_lanes __attribute__((vector_size(4 * LANES), aligned(4)));

/* Floats as integers in the same order, zeros of both signs alike. Returns whether all are finite. */
static int NAME(keys_of)(int32_t *restrict key, const float *restrict value, long size) {
    int32_t infinite = 0;
    for (long i = 0; i < size; i++) {
        const float plain = value[i] + 0.0f; /* -0 becomes 0 */
        int32_t bits;
        memcpy(&bits, &plain, sizeof bits);
        infinite |= (bits & 0x7f800000) == 0x7f800000;
        key[i] = bits ^ (bits >> 31 & 0x7fffffff);
    }
    return !infinite;
}

static int32_t NAME(maximum)(const int32_t *key, long size) {
    int32_t most = INT32_MIN;
    for (long i = 0; i < size; i++)
        most = key[i] > most ? key[i] : most;
    return most;
}

static long NAME(num_from)(const int32_t *key, long size, int32_t least) {
    int32_t count = 0;
    for (long i = 0; i < size; i++)
        count += key[i] >= least;
    return count;
}

/* The `count`-th largest key by halving the range of keys that it can be in. */
static int32_t NAME(by_halving)(const int32_t *key, long size, long count) {
    int64_t low = INT32_MAX, high = NAME(maximum)(key, size);
    for (long i = 0; i < size; i++)
        low = key[i] < low ? key[i] : low;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (NAME(num_from)(key, size, (int32_t)middle) >= count)
            low = middle;
        else
            high = middle - 1;
    }
    return (int32_t)low;
}

/* The keys from `low` to `high`, in their order; `some` needs room for all keys and 8 more. Returns their number. */
static long NAME(between)(int32_t *restrict some, const int32_t *restrict key, long size, int32_t low, int32_t high) {
    long count = 0, i = 0;
#if defined(__x86_64__)
    const __m256i least = _mm256_set1_epi32(low), most = _mm256_set1_epi32(high);
    for (; i + 8 <= size; i += 8) {
        const __m256i eight = _mm256_loadu_si256((const __m256i *)(key + i));
        const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(least, eight), _mm256_cmpgt_epi32(eight, most));
        const int inside = ~_mm256_movemask_ps(_mm256_castsi256_ps(outside)) & 255;
        const __m256i order = _mm256_cvtepu16_epi32((__m128i)set_bits[inside]);
        _mm256_storeu_si256((__m256i *)(some + count), _mm256_permutevar8x32_epi32(eight, order));
        count += __builtin_popcount((unsigned)inside);
    }
#endif
    for (; i < size; i++) {
        some[count] = key[i];
        count += (key[i] >= low) & (key[i] <= high);
    }
    return count;
}

/* The `count`-th largest key. A sample brackets it; what lies between is searched. */
static int32_t NAME(threshold)(const int32_t *key, long size, long count, int32_t *some) {
    enum { SAMPLE = 512, MARGIN = 36 }; /* three standard deviations of a rank in the sample */
    if (size > 4 * SAMPLE) {
        const long rank = (long)((double)count / (double)size * SAMPLE);
        uint64_t place = 0;
        for (int i = 0; i < SAMPLE; i++, place += 2654435761u)
            some[i] = key[place % (uint64_t)size];
        int32_t low = INT32_MIN, high = INT32_MAX;
        if (rank > MARGIN)
            high = NAME(by_halving)(some, SAMPLE, rank - MARGIN);
        if (rank + MARGIN <= SAMPLE)
            low = NAME(by_halving)(some, SAMPLE, rank + MARGIN);
        const long above = high == INT32_MAX ? 0 : NAME(num_from)(key, size, high + 1);
        const long inside = NAME(between)(some, key, size, low, high);
        if (above < count && above + inside >= count)
            return NAME(by_halving)(some, inside, count - above);
    }
    return NAME(by_halving)(key, size, count);
}

/* Where a key lies, in order, into `place`. Returns how often. */
static long NAME(places_of)(int32_t *place, const int32_t *key, long size, int32_t wanted) {
    long count = 0, i = 0;
    for (; i + LANES <= size; i += LANES)
        for (uint32_t found = NAME(bits)(*(const loose_lanes *)(key + i) == wanted); found; found &= found - 1)
            place[count++] = (int32_t)i + __builtin_ctz(found);
    for (; i < size; i++)
        if (key[i] == wanted)
            place[count++] = (int32_t)i;
    return count;
}

/* The mask of the `keep` weights with the highest scores, the best of every row among them; of equal scores the larger
   tie stays, then the lower index. `work` has room for 4 * size + 8 integers. Returns whether all numbers are finite;
   if not there is no mask. */
static int NAME(choose)(
    uint8_t *mask, const float *score, const float *tie, long size, const int64_t *row, long rows, long keep,
    int32_t *work
) {
    int32_t *key = work, *tie_key = work + size, *place = work + 2 * size, *some = work + 3 * size;
    if (!(NAME(keys_of)(key, score, size) & NAME(keys_of)(tie_key, tie, size)))
        return 0;
    for (long i = 0; i < rows; i++) {
        const long start = row[i], length = (i + 1 < rows ? row[i + 1] : size) - start;
        const long tied = NAME(places_of)(place, key + start, length, NAME(maximum)(key + start, length));
        int32_t best = place[0];
        for (long j = 1; j < tied; j++)
            best = tie_key[start + place[j]] > tie_key[start + best] ? place[j] : best;
        key[start + best] = INT32_MAX;
    }
    const int32_t last = NAME(threshold)(key, size, keep, some);
    for (long i = 0; i < size; i++)
        mask[i] = key[i] > last;
    const long tied = NAME(places_of)(place, key, size, last);
    long missing = keep - (NAME(num_from)(key, size, last) - tied);
    if (tied == missing) {
        for (long i = 0; i < tied; i++)
            mask[place[i]] = 1;
        return 1;
    }
    for (long i = 0; i < tied; i++)
        some[i] = tie_key[place[i]];
    const int32_t last_tie = NAME(by_halving)(some, tied, missing);
    for (long i = 0; i < tied; i++)
        if (some[i] > last_tie) {
            mask[place[i]] = 1;
            missing--;
        }
    for (long i = 0; missing; i++)
        if (some[i] == last_tie) {
            mask[place[i]] = 1;
            missing--;
        }
    return 1;
}

/* Weights times their mask; what is lost of each, squared, into `lost`. */
static void NAME(hold)(float *restrict weight, const uint8_t *restrict mask, float *restrict lost, long size) {
    for (long i = 0; i < size; i++) {
        const float kept = weight[i] * (float)mask[i], gone = weight[i] - kept;
        lost[i] = gone * gone;
        weight[i] = kept;
    }
}

static void NAME(multiply)(float *restrict value, const uint8_t *restrict mask, long size) {
    for (long i = 0; i < size; i++)
        value[i] *= (float)mask[i];
}

/* total += factor * state in double precision, the product rounded before it is added. */
static void NAME(add_state)(double *restrict total, const float *restrict state, double factor, long size) {
    if (factor == 1.0) {
        for (long i = 0; i < size; i++)
            total[i] += (double)state[i];
        return;
    }
    for (long start = 0; start < size; start += 512) {
        const long length = size - start < 512 ? size - start : 512;
        double product[512];
        for (long i = 0; i < length; i++)
            product[i] = factor * (double)state[start + i];
        __asm__ volatile("" ::: "memory"); /* else both loops might become one of fused operations */
        for (long i = 0; i < length; i++)
            total[start + i] += product[i];
    }
}

static void NAME(add_counts)(int64_t *restrict count, const uint8_t *restrict mask, long size) {
    for (long i = 0; i < size; i++)
        count[i] += mask[i];
}

#undef lanes
#undef loose_lanes
