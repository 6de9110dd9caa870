/* A server and its client, another process: `served SECONDS`. The server answers lines such as `GET /page/7` on a
 * socket: `answer` has one call for each request, below the loop `serve`, and calls `parse` and `render`, this one several
 * times. `flush` writes the answer. No truth: prints the offset of `answer` in the file's memory, for a build without
 * names, and how many requests were answered. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOT_INLINED __attribute__((noinline, noclone, used))

extern char __executable_start;

static volatile uint64_t sink;
static uint64_t requests;

struct session {
  int fd;
  char line[128];
  char out[256];
};

NOT_INLINED void work(uint64_t rounds) {
  uint64_t x = rounds;
  for (uint64_t i = 0; i < rounds; i++) x = x * 6364136223846793005ull + i;
  sink = x;
}

NOT_INLINED uint64_t parse(const char *text) {
  work(5000);
  return strtoull(text + 10, 0, 10);
}

NOT_INLINED void render(struct session *s, uint64_t page, int part) {
  work(3000);
  snprintf(s->out, sizeof s->out, "page %lu, part %d\n", (unsigned long)page, part);
}

NOT_INLINED void flush(struct session *s) {
  if (write(s->fd, s->out, strlen(s->out)) < 0) sink = 1;
}

NOT_INLINED void answer(struct session *s, const char *text) {
  uint64_t page = parse(text);
  for (int part = 0; part < 5; part++) render(s, page, part);
  flush(s);
  requests++;
}

NOT_INLINED void serve(struct session *s) {
  struct pollfd wait = {.fd = s->fd, .events = POLLIN};
  for (;;) {
    poll(&wait, 1, -1);
    ssize_t got = read(s->fd, s->line, sizeof s->line - 1);
    if (got <= 0) return;
    s->line[got] = 0;
    answer(s, s->line);
  }
}

static void client(int fd, double seconds) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  char line[64], got[256];
  for (uint64_t n = 0;; n++) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 > seconds) return;
    int length = snprintf(line, sizeof line, "GET /page/%lu", (unsigned long)(n % 50));
    if (write(fd, line, length) < 0 || read(fd, got, sizeof got) <= 0) return;
  }
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 5;
  int pair[2];
  signal(SIGPIPE, SIG_IGN);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
  printf("answer %lu\n", (unsigned long)((char *)answer - &__executable_start));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(pair[0]);
    client(pair[1], seconds);
    _exit(0);
  }
  close(pair[1]);
  static struct session session;
  session.fd = pair[0];
  serve(&session);
  waitpid(child, 0, 0);
  printf("answered %d\n", requests > 0);
  return 0;
}
