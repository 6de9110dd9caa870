/* Items of one length, as many at a time as a line on stdin asks for: `paced NS KIB`. Each item is one call of `item`, which
 * works for about NS ns on KIB of memory, loads that need the one before; says `done` after each lot. No truth: what it
 * takes is seen from outside (/proc/PID/schedstat). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t *memory, words;

__attribute__((noinline)) uint64_t item(uint64_t steps, uint64_t from)
{
    uint64_t x = from;
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005ull + memory[(x >> 33) % words] + i;
    return x;
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t ns = argc > 1 ? strtoull(argv[1], 0, 10) : 2000, kib = argc > 2 ? strtoull(argv[2], 0, 10) : 16;
    uint64_t x = 1, trial = 4000000, n;
    words = kib * 1024 / sizeof *memory;
    memory = calloc(words, sizeof *memory);
    if (!memory || !words)
        return 1;
    for (uint64_t i = 0; i < words; i++)
        memory[i] = i;
    uint64_t start = now();
    x = item(trial, x);
    uint64_t steps = ns * trial / (now() - start + 1) + 1;
    while (scanf("%lu", &n) == 1) {
        for (uint64_t i = 0; i < n; i++)
            x = item(steps, x);
        printf("done %lu\n", x & 1);
        fflush(stdout);
    }
    return 0;
}
