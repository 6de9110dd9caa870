// The id of the current item is in a variable of a library: ids_library [ITEMS] [US_PER_ITEM] [FORK]
// With FORK a child does the work. Before and after enclose the setting of the id.
#include "truth.h"
#include <sys/wait.h>

void lib_work(struct item *it, uint64_t ns);

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  uint64_t ns = truth_arg(argc, argv, 2, 600) * 1000ull;
  uint32_t forks = truth_arg(argc, argv, 3, 0);
  truth_init();
  if (forks && fork()) {
    wait(NULL);
    return 0;
  }
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 2, .n = i, .name = "lib"};
    uint64_t before = truth_now();
    lib_work(&it, ns);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  printf("items %u\n", items);
  return 0;
}
