// Short items, each after a byte from another thread, then long ones without a break: chatty [ITEMS] [LONG]
#include "truth.h"

static int request[2], answer[2];

static void *client(void *items) {
  char byte = 1;
  for (uint32_t i = 0; i < *(uint32_t *)items; i++) {
    if (write(request[1], &byte, 1) != 1 || read(answer[0], &byte, 1) != 1) break;
  }
  return NULL;
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  truth_spin(it->n);
  it->leave_ns = truth_now();
}

static void serve(uint32_t id, uint32_t ns) {
  struct item it = {.id = id, .kind = ns > 100000, .n = ns, .name = "chat"};
  uint64_t before = truth_now();
  handle(&it);
  truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 1000), more = truth_arg(argc, argv, 2, 100);
  truth_init();
  if (pipe(request) || pipe(answer)) return 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, client, &items)) return 1;
  char byte;
  for (uint32_t id = 1; id <= items; id++) {
    if (read(request[0], &byte, 1) != 1) return 1;
    serve(id, 10 * 1000);
    if (write(answer[1], &byte, 1) != 1) return 1;
  }
  pthread_join(thread, NULL);
  for (uint32_t id = items + 1; id <= items + more; id++) serve(id, 1000 * 1000);
  truth_write();
  return 0;
}
