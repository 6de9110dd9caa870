// The other processes of a mystery. `helper answer SOCKET` answers on a socket, late if asked to. `helper burst CPU
// RUN_US GAP_US SEED` takes that CPU now and then; with CPU -1 it runs only while the CPU is otherwise idle. Both end
// when killed.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void *answer(void *arg) {
  int fd = (int)(intptr_t)arg;
  uint64_t late_us;
  while (read(fd, &late_us, sizeof late_us) == (ssize_t)sizeof late_us) {
    if (late_us) usleep((useconds_t)late_us);
    if (write(fd, &late_us, sizeof late_us) < 0) break;
  }
  close(fd);
  return NULL;
}

int main(int argc, char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  if (argc > 2 && !strcmp(argv[1], "answer")) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, argv[2], sizeof at.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), peer;
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 128)) return 2;
    while ((peer = accept(fd, NULL, NULL)) >= 0) {
      pthread_t t;
      if (pthread_create(&t, NULL, answer, (void *)(intptr_t)peer) == 0) pthread_detach(t);
    }
    return 2;
  }
  if (argc > 5 && !strcmp(argv[1], "burst")) {
    int cpu = atoi(argv[2]);
    uint64_t run = strtoull(argv[3], NULL, 10) * 1000, gap = strtoull(argv[4], NULL, 10), x = strtoull(argv[5], NULL, 10) | 1;
    if (cpu >= 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
    } else {
      struct sched_param none = {0};
      sched_setscheduler(0, SCHED_IDLE, &none);
    }
    for (;;) {
      x = x * 6364136223846793005ULL + 1442695040888963407ULL;
      usleep((useconds_t)(gap / 2 + (x >> 33) % (gap + 1)));
      for (uint64_t until = now() + run; now() < until;) {}
    }
  }
  return 2;
}
