#include "flatten.h"

#include <stdlib.h>
#include <string.h>

/* Dimensions of a subarray or darray, at most; more is passed through. */
#define DIMENSIONS_MAX 32

/* How a type was made. The numbers of calls with large counts (MPI 4.0, section 5.1.13) are in `counts`, except where
 * they are in `integers`; those of the older calls are in `integers` and `addresses`. */
struct recipe {
    enum combiner combiner;
    int64_t integer_count, address_count, count_count, type_count;
    int *integers;
    int64_t *addresses, *counts;
    void *types;
};

static struct parts flatten_inner(word type, unsigned depth, size_t parts_most);

static enum combiner combiner_of(int value)
{
    for (int combiner = COMBINER_NAMED; combiner < COMBINERS; combiner++)
        if (mpi()->combiners[combiner] == value)
            return (enum combiner)combiner;
    return COMBINER_OTHER;
}

static bool read_envelope(word type, struct recipe *recipe)
{
    int combiner, integers, addresses, types;
    *recipe = (struct recipe){0};
    if (PMPI.Type_get_envelope_c != NULL && PMPI.Type_get_contents_c != NULL) {
        if (PMPI.Type_get_envelope_c(type, &recipe->integer_count, &recipe->address_count,
                                     &recipe->count_count, &recipe->type_count, &combiner) != 0)
            return false;
    } else {
        if (PMPI.Type_get_envelope(type, &integers, &addresses, &types, &combiner) != 0)
            return false;
        recipe->integer_count = integers;
        recipe->address_count = addresses;
        recipe->type_count = types;
    }
    recipe->combiner = combiner_of(combiner);
    return recipe->combiner != COMBINER_OTHER;
}

static void *array(int64_t count, size_t bytes)
{
    return calloc(count > 0 ? (size_t)count : 1, bytes);
}

/* The inner types are the caller's: `recipe_free` gives them back. */
static bool read_contents(word type, struct recipe *recipe)
{
    recipe->integers = array(recipe->integer_count, sizeof *recipe->integers);
    recipe->addresses = array(recipe->address_count, sizeof *recipe->addresses);
    recipe->counts = array(recipe->count_count, sizeof *recipe->counts);
    recipe->types = array(recipe->type_count, sizeof(word));
    if (!recipe->integers || !recipe->addresses || !recipe->counts || !recipe->types)
        return false;
    int result =
        PMPI.Type_get_envelope_c != NULL && PMPI.Type_get_contents_c != NULL
            ? PMPI.Type_get_contents_c(type, recipe->integer_count, recipe->address_count,
                                       recipe->count_count, recipe->type_count, recipe->integers,
                                       recipe->addresses, recipe->counts, recipe->types)
            : PMPI.Type_get_contents(type, (int)recipe->integer_count, (int)recipe->address_count,
                                     (int)recipe->type_count, recipe->integers, recipe->addresses,
                                     recipe->types);
    if (result != 0)
        recipe->type_count = 0;
    return result == 0;
}

static word inner_type(const struct recipe *recipe, int64_t index)
{
    return mpi()->has_pointer_handles ? ((word *)recipe->types)[index]
                                      : ((uint32_t *)recipe->types)[index];
}

static void recipe_free(struct recipe *recipe)
{
    for (int64_t i = 0; recipe->types != NULL && i < recipe->type_count; i++) {
        struct recipe inner;
        word type = inner_type(recipe, i);
        /* Predefined types must not be freed, and some of them have combiners that are not known here (Fortran's kinds, pairs of
         * value and index). So a type of an unknown combiner is left to the MPI. */
        if (read_envelope(type, &inner) && inner.combiner != COMBINER_NAMED)
            (void)PMPI.Type_free(&type);
    }
    free(recipe->integers);
    free(recipe->addresses);
    free(recipe->counts);
    free(recipe->types);
}

/* The `index`-th of a type's counts, wherever they are. */
static int64_t count_at(const struct recipe *recipe, int64_t index)
{
    return recipe->count_count > 0 ? recipe->counts[index] : recipe->integers[index];
}

/* The displacement in bytes: behind `counts` counts if they are large, else the address. */
static int64_t address_at(const struct recipe *recipe, int64_t counts, int64_t index)
{
    return recipe->count_count > 0 ? recipe->counts[counts + index] : recipe->addresses[index];
}

/* A product; 0, and a failed list, if it is too large. */
static int64_t times(struct parts *to, int64_t one, int64_t other)
{
    int64_t product;
    if (!__builtin_mul_overflow(one, other, &product))
        return product;
    to->has_failed = true;
    return 0;
}

static void vector(struct parts *to, const struct recipe *recipe, const struct parts *inner)
{
    bool is_in_bytes = recipe->combiner == COMBINER_HVECTOR;
    int64_t stride = is_in_bytes ? address_at(recipe, 2, 0)
                                 : times(to, count_at(recipe, 2), inner->extent_bytes);
    int64_t count = count_at(recipe, 0), length = count_at(recipe, 1), touching;
    if (!__builtin_mul_overflow(length, inner->extent_bytes, &touching) && touching == stride) {
        to->has_failed |= __builtin_mul_overflow(length, count, &length);
        count = 1;
    }
    for (int64_t i = 0; i < count && !to->has_failed; i++)
        parts_repeat(to, inner, times(to, i, stride), (uint64_t)length);
}

static void indexed(struct parts *to, const struct recipe *recipe, const struct parts *inner)
{
    bool is_block =
        recipe->combiner == COMBINER_INDEXED_BLOCK || recipe->combiner == COMBINER_HINDEXED_BLOCK;
    bool is_in_bytes =
        recipe->combiner == COMBINER_HINDEXED || recipe->combiner == COMBINER_HINDEXED_BLOCK;
    int64_t count = count_at(recipe, 0);
    int64_t behind = 1 + (is_block ? 1 : count);
    for (int64_t i = 0; i < count && !to->has_failed; i++) {
        int64_t length = count_at(recipe, is_block ? 1 : 1 + i);
        int64_t at = is_in_bytes ? address_at(recipe, behind, i)
                                 : times(to, count_at(recipe, behind + i), inner->extent_bytes);
        parts_repeat(to, inner, at, (uint64_t)length);
    }
}

static void structure(struct parts *to, const struct recipe *recipe, unsigned depth)
{
    int64_t count = count_at(recipe, 0);
    for (int64_t i = 0; i < count && !to->has_failed; i++) {
        struct parts inner = flatten_inner(inner_type(recipe, i), depth, to->most);
        parts_repeat(to, &inner, address_at(recipe, 1 + count, i), (uint64_t)count_at(recipe, 1 + i));
        parts_free(&inner);
    }
}

/* The indices of one dimension: `length` of them from `start` on, again after each `period`, all below `end`. */
struct dimension {
    int64_t start, length, period, end;
    int64_t stride_bytes; /* from one index to the next */
};

/* All elements, with `dimensions[0]` changing slowest. */
static void box(struct parts *to, const struct parts *inner, const struct dimension *dimensions,
                int64_t count, int64_t offset_bytes)
{
    const struct dimension *outer = &dimensions[0];
    for (int64_t start = outer->start; start < outer->end && !to->has_failed; start += outer->period) {
        int64_t end = start + outer->length < outer->end ? start + outer->length : outer->end;
        if (count == 1) {
            parts_repeat(to, inner, offset_bytes + start * outer->stride_bytes, (uint64_t)(end - start));
            continue;
        }
        for (int64_t index = start; index < end && !to->has_failed; index++)
            box(to, inner, dimensions + 1, count - 1, offset_bytes + index * outer->stride_bytes);
    }
}

/* Gives the dimensions their strides in the order of the array, and turns those of Fortran round: slowest first. */
static void lay_out(struct parts *to, struct dimension *dimensions, int64_t count, bool is_fortran, const int64_t *sizes,
                    int64_t element_bytes)
{
    int64_t stride = element_bytes;
    for (int64_t i = 0; i < count; i++) {
        int64_t index = is_fortran ? i : count - 1 - i;
        dimensions[index].stride_bytes = stride;
        stride = times(to, stride, sizes[index]);
    }
    for (int64_t i = 0; is_fortran && i < count / 2; i++) {
        struct dimension kept = dimensions[i];
        dimensions[i] = dimensions[count - 1 - i];
        dimensions[count - 1 - i] = kept;
    }
}

static void subarray(struct parts *to, const struct recipe *recipe, const struct parts *inner)
{
    struct dimension dimensions[DIMENSIONS_MAX];
    int64_t sizes[DIMENSIONS_MAX];
    int64_t count = recipe->integers[0];
    bool is_large = recipe->count_count > 0;
    if (count < 1 || count > DIMENSIONS_MAX) {
        to->has_failed = true;
        return;
    }
    const int *integers = recipe->integers + 1;
    const int64_t *counts = recipe->counts;
    for (int64_t i = 0; i < count; i++) {
        sizes[i] = is_large ? counts[i] : integers[i];
        int64_t length = is_large ? counts[count + i] : integers[count + i];
        int64_t start = is_large ? counts[2 * count + i] : integers[2 * count + i];
        dimensions[i] = (struct dimension){start, length, INT64_MAX / 4, start + length, 0};
    }
    int order = is_large ? recipe->integers[1] : integers[3 * count];
    lay_out(to, dimensions, count, order == mpi()->order_fortran, sizes, inner->extent_bytes);
    if (!to->has_failed)
        box(to, inner, dimensions, count, 0);
}

/* MPI 4.1, section 5.1.4: the processes are a grid in C's order, whatever the array's order is. */
static void darray(struct parts *to, const struct recipe *recipe, const struct parts *inner)
{
    struct dimension dimensions[DIMENSIONS_MAX];
    int64_t sizes[DIMENSIONS_MAX];
    const int *integers = recipe->integers;
    int64_t rank = integers[1], count = integers[2];
    bool is_large = recipe->count_count > 0;
    if (count < 1 || count > DIMENSIONS_MAX) {
        to->has_failed = true;
        return;
    }
    const int *distributions = integers + 3 + (is_large ? 0 : count);
    const int *arguments = distributions + count, *processes = arguments + count;
    for (int64_t i = count - 1; i >= 0; i--) {
        int64_t size = is_large ? recipe->counts[i] : integers[3 + i];
        int64_t among = processes[i] > 0 ? processes[i] : 1, place = rank % among;
        bool is_default = arguments[i] == mpi()->distribute_default;
        struct dimension *one = &dimensions[i];
        sizes[i] = size;
        rank /= among;
        if (distributions[i] == mpi()->distribute_block) {
            int64_t length = is_default ? (size + among - 1) / among : arguments[i];
            int64_t end = (place + 1) * length;
            *one = (struct dimension){place * length, length, INT64_MAX / 4, end < size ? end : size, 0};
        } else if (distributions[i] == mpi()->distribute_cyclic) {
            int64_t length = is_default ? 1 : arguments[i];
            *one = (struct dimension){place * length, length, among * length, size, 0};
        } else {
            *one = (struct dimension){0, size, INT64_MAX / 4, size, 0};
        }
        to->has_failed |= one->length < 1;
    }
    lay_out(to, dimensions, count, processes[count] == mpi()->order_fortran, sizes, inner->extent_bytes);
    if (!to->has_failed)
        box(to, inner, dimensions, count, 0);
}

static void build(struct parts *to, const struct recipe *recipe, unsigned depth)
{
    if (recipe->combiner == COMBINER_STRUCT) {
        structure(to, recipe, depth);
        return;
    }
    struct parts inner = flatten_inner(inner_type(recipe, 0), depth, to->most);
    to->has_failed |= inner.has_failed;
    if (!inner.has_failed && inner.count > 0) {
        switch (recipe->combiner) {
        case COMBINER_DUP:
        case COMBINER_RESIZED:
            parts_repeat(to, &inner, 0, 1);
            break;
        case COMBINER_CONTIGUOUS:
            parts_repeat(to, &inner, 0, (uint64_t)count_at(recipe, 0));
            break;
        case COMBINER_VECTOR:
        case COMBINER_HVECTOR:
            vector(to, recipe, &inner);
            break;
        case COMBINER_SUBARRAY:
            subarray(to, recipe, &inner);
            break;
        case COMBINER_DARRAY:
            darray(to, recipe, &inner);
            break;
        default:
            indexed(to, recipe, &inner);
        }
    }
    parts_free(&inner);
}

/* A named type without holes; those of pairs (MPI_DOUBLE_INT) may have some, and are not understood. */
static void named(struct parts *to, word type)
{
    int bytes;
    int64_t lower, true_extent;
    if (PMPI.Type_size(type, &bytes) != 0 || bytes < 0 ||
        PMPI.Type_get_true_extent(type, &lower, &true_extent) != 0 || lower != 0 ||
        true_extent != bytes)
        to->has_failed = true;
    else
        parts_add(to, 0, (uint64_t)bytes);
}

static struct parts flatten_inner(word type, unsigned depth, size_t parts_most)
{
    struct parts parts = {.most = parts_most};
    struct recipe recipe;
    int64_t lower;
    if (depth == 0 || !read_envelope(type, &recipe)) {
        parts.has_failed = true;
        return parts;
    }
    if (recipe.combiner == COMBINER_NAMED) {
        named(&parts, type);
    } else {
        if (read_contents(type, &recipe))
            build(&parts, &recipe, depth - 1);
        else
            parts.has_failed = true;
        recipe_free(&recipe);
    }
    if (PMPI.Type_get_extent(type, &lower, &parts.extent_bytes) != 0)
        parts.has_failed = true;
    return parts;
}

struct parts flatten(word type, size_t parts_most)
{
    return flatten_inner(type, FLATTEN_DEPTH_MAX, parts_most);
}
