/* Fixed work of a kind, for what sampling costs: `fixed KIND THREADS STEPS [KIB [DEPTH [RING EVERY]]]`. Each thread does STEPS
 * steps in one call of `work`, DEPTH calls below it; its memory, KIB of it, is made before, of huge pages if there are
 * any: which small ones it gets decides how well they share a cache, and is another matter in each run. Prints
 * `elapsed NS cpu NS check N`: the time of the longest thread, and the CPU time of all within `work`. No item, no truth.
 *
 * integer   a chain of multiplications and shifts
 * branchy   branches that follow random bits
 * chase     each load needs the one before: a random cycle through KIB of memory
 * stream    reads and writes KIB of memory from end to end
 *
 * With RING a chase writes a record of 192 bytes into a ring of RING KiB every EVERY steps, as hardware that samples writes
 * into its buffer.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, RECORD = 192, HUGE = 2 << 20, MOST_THREADS = 64 };

struct job {
    const char *kind;
    uint64_t steps, lines, depth, ring_bytes, every, check, elapsed, cpu;
    uint64_t *memory;
    char *ring;
};

static pthread_barrier_t start;

static uint64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t integer(uint64_t steps)
{
    uint64_t x = 1;
    for (uint64_t i = 0; i < steps; i++)
        x = (x * 6364136223846793005ull + i) ^ (x >> 29);
    return x;
}

static uint64_t branchy(uint64_t steps)
{
    uint64_t state = 88172645463325252ull, a = 0, b = 0;
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t bits = next(&state);
        if (bits & 1) {
            a += bits >> 32;
            __asm__ volatile("" : "+r"(a));
        } else if (bits & 2) {
            b ^= bits;
            __asm__ volatile("" : "+r"(b));
        } else {
            a -= b;
            __asm__ volatile("" : "+r"(a));
        }
    }
    return a ^ b;
}

static uint64_t chase(const struct job *job)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < job->steps; i++)
        at = job->memory[at];
    return at;
}

static uint64_t chase_and_write(const struct job *job)
{
    uint64_t at = 0, left = job->every, place = 0;
    for (uint64_t i = 0; i < job->steps; i++) {
        at = job->memory[at];
        if (--left)
            continue;
        left = job->every;
        memset(job->ring + place, (int)i, RECORD);
        __asm__ volatile("" : : "r"(job->ring) : "memory");
        place += RECORD;
        if (place + RECORD > job->ring_bytes)
            place = 0;
    }
    return at;
}

static uint64_t stream(const struct job *job)
{
    uint64_t words = job->lines * (LINE / 8), sum = 0, at = 0;
    for (uint64_t i = 0; i < job->steps; i++) {
        sum += job->memory[at];
        job->memory[at] = sum;
        at = at + 1 == words ? 0 : at + 1;
    }
    return sum;
}

/* One cycle through all lines, in random order (Sattolo). */
static void tie(struct job *job)
{
    uint64_t state = 88172645463325252ull;
    uint64_t *order = malloc(job->lines * sizeof *order);
    if (!order)
        exit(1);
    for (uint64_t i = 0; i < job->lines; i++)
        order[i] = i;
    for (uint64_t i = job->lines - 1; i > 0; i--) {
        uint64_t j = next(&state) % i, line = order[i];
        order[i] = order[j];
        order[j] = line;
    }
    for (uint64_t i = 0; i < job->lines; i++)
        job->memory[order[i] * (LINE / 8)] = order[(i + 1) % job->lines] * (LINE / 8);
    free(order);
}

static uint64_t steps(const struct job *job)
{
    switch (job->kind[0]) {
    case 'i':
        return integer(job->steps);
    case 'b':
        return branchy(job->steps);
    case 'c':
        return job->ring ? chase_and_write(job) : chase(job);
    default:
        return stream(job);
    }
}

/* Memory of huge pages if there are any. */
static void *pages(size_t bytes)
{
    bytes = (bytes + HUGE - 1) / HUGE * HUGE;
    void *memory = aligned_alloc(HUGE, bytes);
    if (!memory)
        exit(1);
    madvise(memory, bytes, MADV_HUGEPAGE); /* where it is refused, small ones do */
    memset(memory, 1, bytes);
    return memory;
}

__attribute__((noinline)) static uint64_t below(const struct job *job, uint64_t depth)
{
    uint64_t check = depth ? below(job, depth - 1) : steps(job);
    __asm__ volatile("" : "+r"(check)); /* no tail call */
    return check;
}

__attribute__((noinline)) uint64_t work(const struct job *job)
{
    uint64_t check = job->depth ? below(job, job->depth - 1) : steps(job);
    __asm__ volatile("" : "+r"(check)); /* no tail call: the visit would end there */
    return check;
}

static void *run(void *argument)
{
    struct job *job = argument;
    job->memory = pages(job->lines * LINE);
    if (job->ring_bytes >= RECORD && job->every)
        job->ring = pages(job->ring_bytes);
    if (job->kind[0] == 'c')
        tie(job);
    pthread_barrier_wait(&start);
    uint64_t elapsed = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    job->check = work(job);
    job->cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    job->elapsed = now(CLOCK_MONOTONIC) - elapsed;
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (argc < 4 || threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: fixed integer|branchy|chase|stream THREADS STEPS [KIB [DEPTH [RING EVERY]]]\n");
        return 2;
    }
    struct job jobs[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    uint64_t elapsed = 0, cpu = 0, check = 0;
    pthread_barrier_init(&start, NULL, threads);
    for (int i = 0; i < threads; i++) {
        uint64_t kib = argc > 4 ? strtoull(argv[4], NULL, 10) : 64;
        uint64_t depth = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
        uint64_t ring = argc > 7 ? strtoull(argv[6], NULL, 10) * 1024 : 0;
        uint64_t every = argc > 7 ? strtoull(argv[7], NULL, 10) : 0;
        jobs[i] = (struct job){.kind = argv[1],
                               .steps = strtoull(argv[3], NULL, 10),
                               .lines = kib * 1024 / LINE,
                               .depth = depth,
                               .ring_bytes = ring,
                               .every = every};
        if (pthread_create(&ids[i], NULL, run, &jobs[i]))
            return 1;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        elapsed = jobs[i].elapsed > elapsed ? jobs[i].elapsed : elapsed;
        cpu += jobs[i].cpu;
        check ^= jobs[i].check;
    }
    printf("elapsed %llu cpu %llu check %llu\n", (unsigned long long)elapsed, (unsigned long long)cpu,
           (unsigned long long)check);
    return 0;
}
