// Items between USDT probes that the program ships: usdt [ITEMS]
// `begin` is at two places, at which its arguments lie elsewhere, and there only while a tracer asks for it (its
// semaphore); `end` has a result. Ids count from 1.
#include "truth.h"

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

unsigned short app_begin_semaphore __attribute__((section(".probes"), used));
unsigned short app_end_semaphore __attribute__((section(".probes"), used));

int level = -7;
static uint64_t checksum;

__attribute__((noinline, noclone)) static void odd(char pad, uint64_t id, short kind) {
  checksum ^= pad;
  if (app_begin_semaphore) DTRACE_PROBE5(app, begin, id, kind, "odd", 42, level);
}

__attribute__((noinline, noclone)) static void even(uint64_t id, short kind) {
  if (app_begin_semaphore) DTRACE_PROBE5(app, begin, id, kind, "even", 42, level);
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 200);
  truth_init();
  uint64_t asked = 0;
  for (uint32_t i = 1; i <= items; i++) {
    uint64_t before = truth_now();
    asked += app_begin_semaphore != 0;
    if (i & 1)
      odd((char)i, i, (short)(-(int)i | 1));
    else
      even(i, (short)(-(int)i * 2));
    uint64_t enter = truth_now();
    checksum ^= truth_work(i, 500);
    uint64_t leave = truth_now();
    DTRACE_PROBE2(app, end, (signed char)-(int)(i % 100), (uint64_t)i);
    truth_item(i, before, enter, leave, truth_now());
  }
  truth_note("asked", asked);
  truth_write();
  printf("items %u, checksum %016llx\n", items, (unsigned long long)checksum);
  return 0;
}
