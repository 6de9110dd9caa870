/* Serves requests of four kinds, most of them look-ups in a table, some of which are rare and long. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

enum { BUCKETS = 1 << 14 };

struct entry {
	struct entry *next;
	uint64_t key;
	char value[48];
};

static struct entry *table[BUCKETS];

static struct entry *find(uint64_t key)
{
	struct entry *it = table[key * 0x9e3779b97f4a7c15ull >> 50];
	while (it && it->key != key)
		it = it->next;
	return it;
}

static void put(uint64_t key)
{
	struct entry *it = find(key);
	if (!it) {
		struct entry **head = &table[key * 0x9e3779b97f4a7c15ull >> 50];
		it = malloc(sizeof *it);
		if (!it)
			abort();
		it->next = *head;
		it->key = key;
		*head = it;
	}
	snprintf(it->value, sizeof it->value, "value %llu of %llu", (unsigned long long)next(),
		 (unsigned long long)key);
}

/* All entries of every 64th bucket. */
static uint64_t scan(void)
{
	uint64_t sum = 0;
	for (unsigned i = next() % 64; i < BUCKETS; i += 64)
		for (struct entry *it = table[i]; it; it = it->next)
			sum += strlen(it->value);
	return sum;
}

static uint64_t format(void)
{
	char text[4096];
	size_t at = 0;
	while (at + 64 < sizeof text)
		at += (size_t)snprintf(text + at, sizeof text - at, "{\"k\":%llu,\"f\":%.6f},",
				       (unsigned long long)next(), (double)(next() % 1000) / 7);
	return at;
}

int main(int argc, char **argv)
{
	state = 88172645463325252ull + (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 104729;
	uint64_t sum = 0;
	for (unsigned i = 0; i < 150000; i++) {
		uint64_t kind = next() % 1000, key = next() % 40000;
		key = key * key / 40000; /* Small keys are asked for more often. */
		if (kind < 700) {
			struct entry *it = find(key);
			sum += it ? (unsigned char)it->value[6] : 0;
		} else if (kind < 985) {
			put(key);
		} else if (kind < 993) {
			sum += scan();
		} else {
			sum += format();
		}
	}
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
