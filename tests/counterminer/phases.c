/* Goes through phases that strain different parts of a CPU, in an order and of lengths that a seed gives. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

enum { NODES = 1 << 16, SIDE = 48, WORDS = 1 << 15 };

static uint32_t chain[NODES];
static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
static uint32_t words[WORDS];

/* Loads that miss: each leads to the next. */
static uint64_t chase(unsigned steps)
{
	uint32_t at = 0;
	for (unsigned i = 0; i < steps; i++)
		at = chain[at];
	return at;
}

/* Arithmetic on what fits the first level. */
static uint64_t multiply(void)
{
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			double sum = 0;
			for (int k = 0; k < SIDE; k++)
				sum += a[i][k] * b[k][j];
			c[i][j] = sum;
		}
	return (uint64_t)c[3][5];
}

/* Branches that cannot be foreseen. */
static uint64_t branches(unsigned steps)
{
	uint64_t odd = 0;
	for (unsigned i = 0; i < steps; i++) {
		uint64_t r = next();
		if (r & 1)
			odd += r;
		else if (r & 2)
			odd ^= r;
		if (r & 4)
			odd--;
	}
	return odd;
}

static int by_value(const void *x, const void *y)
{
	uint32_t l = *(const uint32_t *)x, r = *(const uint32_t *)y;
	return l < r ? -1 : l > r;
}

/* Indirect calls, stores and branches. */
static uint64_t sort(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		words[i] = (uint32_t)next();
	qsort(words, count, sizeof *words, by_value);
	return words[count / 2];
}

int main(int argc, char **argv)
{
	state = 88172645463325252ull + (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 7919;
	for (unsigned i = 0; i < NODES; i++)
		chain[i] = i;
	for (unsigned i = NODES - 1; i > 0; i--) {
		unsigned j = next() % i;
		uint32_t swap = chain[i];
		chain[i] = chain[j];
		chain[j] = swap;
	}
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			a[i][j] = (double)(next() % 100);
			b[i][j] = (double)(next() % 100);
		}
	uint64_t sum = 0;
	for (int round = 0; round < 200; round++) {
		unsigned length = 1 + next() % 6;
		switch (round % 4) {
		case 0:
			sum += chase(60000 * length);
			break;
		case 1:
			for (unsigned i = 0; i < length; i++)
				sum += multiply();
			break;
		case 2:
			sum += branches(25000 * length);
			break;
		default:
			sum += sort(1500 * length);
		}
	}
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
