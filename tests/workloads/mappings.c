// Items beside a thread that changes the process's mappings all the time: mappings [ITEMS] [PAGES]
// An item works on registers alone and never waits; the other thread holds the lock of the mappings while it gives back
// PAGES pages. A breakpoint that the kernel looks up meanwhile waits for that lock.
#include "truth.h"

#include <sys/mman.h>

static int stop;
static uint64_t pages;

PROBED uint64_t handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 2000);
  it->leave_ns = truth_now();
  return x;
}

static void *remapper(void *arg) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    char *p = (char *)mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED || munmap(p, pages << 12)) {
      perror("mmap");
      exit(1);
    }
  }
  return arg;
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 20000);
  pages = truth_arg(argc, argv, 2, 8192);
  truth_init();
  pthread_t other;
  pthread_create(&other, NULL, remapper, NULL);
  uint64_t checksum = 0;
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 3, .n = i, .name = "mappings"};
    uint64_t before = truth_now();
    checksum ^= handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(other, NULL);
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
