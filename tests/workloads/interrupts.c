// Items that are interrupted: interrupts [ITEMS]
// Of three items in turn the first works while a timer expires every 100 us, the second sends packets to
// itself, which the kernel delivers in the sender's time, and the third does neither. Lines `call timer i` and `call
// packets i` have the number of times as leave.
#include "truth.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

static volatile sig_atomic_t fired;
static int sender, receiver;

static void on_timer(int number) {
  (void)number;
  fired++;
}

static void timer(uint32_t us) {
  struct itimerval every = {{0, us}, {0, us}};
  setitimer(ITIMER_REAL, &every, NULL);
}

PROBED void work(void) {
  timer(100);
  while (fired < 20) truth_spin(1000);
  timer(0);
}

PROBED uint32_t packets(void) {
  uint32_t sent = 0;
  char byte;
  for (int i = 0; i < 20; i++) {
    sent += send(sender, "x", 1, 0) == 1;
    if (recv(receiver, &byte, 1, 0) != 1) break;
  }
  return sent;
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  if (it->kind == 1) work();
  if (it->kind == 2) it->n = packets();
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 90);
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof at;
  truth_init();
  truth_pin(0);
  sigaction(SIGALRM, &action, NULL);
  receiver = socket(AF_INET, SOCK_DGRAM, 0);
  sender = socket(AF_INET, SOCK_DGRAM, 0);
  if (bind(receiver, (struct sockaddr *)&at, sizeof at) || getsockname(receiver, (struct sockaddr *)&at, &length) ||
      connect(sender, (struct sockaddr *)&at, sizeof at)) {
    perror("socket");
    return 1;
  }
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 3, .name = "interrupts"};
    fired = 0;
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    truth_call("timer", i, 0, it.kind == 1 ? (uint64_t)fired : 0);
    truth_call("packets", i, 0, it.n);
  }
  truth_write();
  return 0;
}
