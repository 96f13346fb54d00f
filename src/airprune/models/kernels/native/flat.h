/* What a device does with flat vectors beside training: choose the weights to keep, hold them, add itself to a sum.

   Included after paper_cnn.h, once per instruction set, with NAME and LANES set. Results are those of the same steps in
   numpy to the bit. */

#define lanes NAME(lanes)
#define loose_lanes NAME(loose_lanes)
typedef int loose_lanes __attribute__((vector_size(4 * LANES), aligned(4)));

/* A float as an integer in the same order, zeros of both signs alike. */
static ALWAYS_INLINE int32_t NAME(key_of)(float value) {
    const float plain = value + 0.0f; /* -0 becomes 0 */
    int32_t bits;
    memcpy(&bits, &plain, sizeof bits);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

static int NAME(all_finite)(const float *value, long size) {
    int32_t most = 0;
    for (long i = 0; i < size; i++) {
        int32_t bits;
        memcpy(&bits, value + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

/* Keys of some values, or of factor * |value|, and the largest of them. Returns whether all are finite. */
static int NAME(keys_of)(
    int32_t *restrict key, const float *restrict value, float factor, int absolute, long size, int32_t *restrict largest
) {
    int32_t most = INT32_MIN, least = INT32_MAX;
    if (absolute)
        for (long i = 0; i < size; i++) {
            const float score = factor * fabsf(value[i]);
            memcpy(key + i, &score, sizeof score);
            most = key[i] > most ? key[i] : most;
        }
    else
        for (long i = 0; i < size; i++) {
            key[i] = NAME(key_of)(value[i]);
            most = key[i] > most ? key[i] : most;
            least = key[i] < least ? key[i] : least;
        }
    *largest = most;
    return most < 0x7f800000 && (absolute || least > (int32_t)(0xff800000 ^ 0x7fffffff));
}

/* The key of a tie of which these bits count: all, or all but the sign. */
static ALWAYS_INLINE int32_t NAME(tie_of)(float tie, int32_t kept) {
    int32_t bits;
    memcpy(&bits, &tie, sizeof bits);
    bits &= kept;
    memcpy(&tie, &bits, sizeof bits);
    return NAME(key_of)(tie);
}

static long NAME(num_from)(const int32_t *key, long size, int32_t least) {
    int32_t count = 0;
    for (long i = 0; i < size; i++)
        count += key[i] >= least;
    return count;
}

static long NAME(num_equal)(const int32_t *key, long size, int32_t wanted) {
    int32_t count = 0;
    for (long i = 0; i < size; i++)
        count += key[i] == wanted;
    return count;
}

/* The `count`-th largest key by halving the range of keys that it can be in. */
static int32_t NAME(by_halving)(const int32_t *key, long size, long count) {
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (long i = 0; i < size; i++) {
        least = key[i] < least ? key[i] : least;
        most = key[i] > most ? key[i] : most;
    }
    int64_t low = least, high = most;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (NAME(num_from)(key, size, (int32_t)middle) >= count)
            low = middle;
        else
            high = middle - 1;
    }
    return (int32_t)low;
}

/* Where a threshold lies, and how many keys are above it and equal to it. */
struct NAME(rank) {
    int32_t last;
    long above, equal;
};

/* Of all keys against a bracket: how many are above it, at its upper end, and at its lower end; those between are put
   into `some`, in their order, which needs room for all keys and 8 more. Returns their number. */
static long NAME(split)(
    int32_t *restrict some, const int32_t *restrict key, long size, int32_t low, int32_t high, long count[3]
) {
    long inside = 0, i = 0;
    int32_t above = 0, at_high = 0, at_low = 0;
#if defined(__x86_64__)
    const __m256i least = _mm256_set1_epi32(low), most = _mm256_set1_epi32(high);
    __m256i sum[3] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (; i + 8 <= size; i += 8) {
        const __m256i eight = _mm256_loadu_si256((const __m256i *)(key + i));
        sum[0] = _mm256_sub_epi32(sum[0], _mm256_cmpgt_epi32(eight, most));
        sum[1] = _mm256_sub_epi32(sum[1], _mm256_cmpeq_epi32(eight, most));
        sum[2] = _mm256_sub_epi32(sum[2], _mm256_cmpeq_epi32(eight, least));
        const __m256i between = _mm256_and_si256(_mm256_cmpgt_epi32(eight, least), _mm256_cmpgt_epi32(most, eight));
        const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(between));
        const __m256i order = _mm256_cvtepu16_epi32((__m128i)set_bits[bits]);
        _mm256_storeu_si256((__m256i *)(some + inside), _mm256_permutevar8x32_epi32(eight, order));
        inside += __builtin_popcount((unsigned)bits);
    }
    int32_t part[3][8];
    memcpy(part, sum, sizeof part);
    for (int lane = 0; lane < 8; lane++) {
        above += part[0][lane];
        at_high += part[1][lane];
        at_low += part[2][lane];
    }
#endif
    for (; i < size; i++) {
        above += key[i] > high;
        at_high += key[i] == high;
        at_low += key[i] == low;
        some[inside] = key[i];
        inside += (key[i] > low) & (key[i] < high);
    }
    count[0] = above;
    count[1] = at_high;
    count[2] = at_low;
    return inside;
}

/* The `count`-th largest key. A sample brackets it; what lies between is searched. Often many keys are equal, the zeros
   of units that are cut off: they are no part of the search, but an end of the bracket. */
static struct NAME(rank) NAME(threshold)(const int32_t *key, long size, long count, int32_t *some) {
    enum { SAMPLE = 512, MARGIN = 36 }; /* three standard deviations of a rank in the sample */
    if (size > 4 * SAMPLE) {
        const long rank = (long)((double)count / (double)size * SAMPLE);
        uint32_t place = 0;
        for (int i = 0; i < SAMPLE; i++, place += 2654435761u)
            some[i] = key[(uint64_t)place * (uint64_t)size >> 32];
        int32_t low = INT32_MIN, high = INT32_MAX;
        if (rank > MARGIN)
            high = NAME(by_halving)(some, SAMPLE, rank - MARGIN);
        if (rank + MARGIN <= SAMPLE)
            low = NAME(by_halving)(some, SAMPLE, rank + MARGIN);
        long number[3];
        const long inside = NAME(split)(some, key, size, low, high, number);
        const long above = number[0], from_high = above + number[1];
        if (count > above && count <= from_high)
            return (struct NAME(rank)){high, above, number[1]};
        if (count > from_high && count <= from_high + inside) {
            const int32_t last = NAME(by_halving)(some, inside, count - from_high);
            const long equal = NAME(num_equal)(some, inside, last);
            return (struct NAME(rank)){last, from_high + NAME(num_from)(some, inside, last) - equal, equal};
        }
        if (low < high && count > from_high + inside && count <= from_high + inside + number[2])
            return (struct NAME(rank)){low, from_high + inside, number[2]};
    }
    const int32_t last = NAME(by_halving)(key, size, count);
    const long equal = NAME(num_equal)(key, size, last);
    return (struct NAME(rank)){last, NAME(num_from)(key, size, last) - equal, equal};
}

/* Where a key lies first; `size` if it does not. */
static long NAME(first_of)(const int32_t *key, long size, int32_t wanted) {
    long i = 0;
    for (; i + LANES <= size; i += LANES) {
        const uint32_t found = NAME(bits)(*(const loose_lanes *)(key + i) == wanted);
        if (found)
            return i + __builtin_ctz(found);
    }
    while (i < size && key[i] != wanted)
        i++;
    return i;
}

/* Where a key lies, in order, into `place`, which needs room for all keys and 8 more. Returns how often. */
static long NAME(places_of)(int32_t *place, const int32_t *key, long size, int32_t wanted) {
    long count = 0, i = 0;
#if defined(__x86_64__)
    for (; i + 8 <= size; i += 8) {
        const __m256i equal =
            _mm256_cmpeq_epi32(_mm256_loadu_si256((const __m256i *)(key + i)), _mm256_set1_epi32(wanted));
        const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(equal));
        const __m256i inside = _mm256_cvtepu16_epi32((__m128i)set_bits[bits]);
        _mm256_storeu_si256((__m256i *)(place + count), _mm256_add_epi32(inside, _mm256_set1_epi32((int32_t)i)));
        count += __builtin_popcount((unsigned)bits);
    }
#endif
    for (; i < size; i++) {
        place[count] = (int32_t)i;
        count += key[i] == wanted;
    }
    return count;
}

/* The mask of the `keep` weights with the highest values, the best of every row among them; of equal ones the larger
   tie stays, then the lower index. If `absolute`, they rank by factor * |value|, then by |tie|. `work` has room for
   3 * size + 24 integers. Returns whether all values are finite; if not there is no mask. Ties must be. */
static int NAME(choose)(
    uint8_t *mask, const float *value, const float *tie, float factor, int absolute, long size, const int64_t *row,
    long rows, long keep, int32_t *work
) {
    int32_t *key = work, *place = key + size + 8, *some = place + size + 8;
    const int32_t tie_bits = absolute ? INT32_MAX : -1;
    int finite = 1;
    for (long i = 0; finite && i < rows; i++) {
        const long start = row[i], length = (i + 1 < rows ? row[i + 1] : size) - start;
        int32_t most, most_tie = INT32_MIN;
        finite = NAME(keys_of)(key + start, value + start, factor, absolute, length, &most);
        long best = NAME(first_of)(key + start, length, most);
        if (NAME(first_of)(key + start + best + 1, length - best - 1, most) < length - best - 1) {
            for (long j = 0; j < length; j++) {
                some[j] = key[start + j] == most ? NAME(tie_of)(tie[start + j], tie_bits) : INT32_MIN;
                most_tie = some[j] > most_tie ? some[j] : most_tie;
            }
            best = NAME(first_of)(some, length, most_tie);
        }
        key[start + best] = INT32_MAX;
    }
    if (!finite)
        return 0;
    const struct NAME(rank) rank = NAME(threshold)(key, size, keep, some);
    const int32_t last = rank.last;
    if (rank.equal == keep - rank.above) {
        for (long i = 0; i < size; i++)
            mask[i] = key[i] >= last;
        return 1;
    }
    for (long i = 0; i < size; i++)
        mask[i] = key[i] > last;
    const long tied = NAME(places_of)(place, key, size, last);
    for (long i = 0; i < tied; i++)
        some[i] = NAME(tie_of)(tie[place[i]], tie_bits);
    const struct NAME(rank) tie_rank = NAME(threshold)(some, tied, keep - rank.above, key); /* keys are done with */
    for (long i = 0; i < tied; i++)
        mask[place[i]] = some[i] > tie_rank.last;
    long missing = keep - rank.above - tie_rank.above;
    for (long i = 0; missing; i++)
        if (some[i] == tie_rank.last) {
            mask[place[i]] = 1;
            missing--;
        }
    return 1;
}

/* The sum of at most 128 numbers, added as numpy does: by eight sums. */
static ALWAYS_INLINE float NAME(sum_of)(const float *value, long size) {
    float total = 0.0f;
    long i = 0;
    if (size >= 8) {
        floats8 sum = *(const floats8 *)value;
        for (i = 8; i + 8 <= size; i += 8)
            sum += *(const floats8 *)(value + i);
        total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    }
    for (; i < size; i++)
        total += value[i];
    return total;
}

/* Weights times their mask; returns the sum of the squares of what is lost, added as numpy does: blocks of at most 128,
   above that halves of whole eights. */
static float NAME(hold)(float *restrict weight, const uint8_t *restrict mask, long size) {
    if (size > 128) {
        const long half = size / 2 - size / 2 % 8;
        const float first = NAME(hold)(weight, mask, half);
        return first + NAME(hold)(weight + half, mask + half, size - half);
    }
    float lost[128];
    for (long i = 0; i < size; i++) {
        const float kept = weight[i] * (float)mask[i], gone = weight[i] - kept;
        lost[i] = gone * gone;
        weight[i] = kept;
    }
    __asm__ volatile("" ::"r"(lost) : "memory"); /* else squares might be fused into the sum */
    return NAME(sum_of)(lost, size);
}

static void NAME(multiply)(float *restrict value, const uint8_t *restrict mask, long size) {
    for (long i = 0; i < size; i++)
        value[i] *= (float)mask[i];
}

/* A step of what the mask has: target += factor * (values * mask), each entry rounded once. */
static void NAME(masked_step)(
    float *restrict target, const float *restrict value, const uint8_t *restrict mask, float factor, long size
) {
    for (long i = 0; i < size; i++)
        target[i] = __builtin_fmaf(factor, value[i] * (float)mask[i], target[i]);
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

/* A mask into counts of at most 255 masks. */
static void NAME(tally)(uint8_t *restrict count, const uint8_t *restrict mask, long size) {
    for (long i = 0; i < size; i++)
        count[i] += mask[i];
}

static void NAME(add_counts)(int64_t *restrict count, const uint8_t *restrict mask, long size) {
    for (long i = 0; i < size; i++)
        count[i] += mask[i];
}

#undef lanes
#undef loose_lanes
