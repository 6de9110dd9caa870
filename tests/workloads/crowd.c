// Processes that sleep: crowd [PROCESSES]
// They end when the first one does. Says how many there are.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int processes = argc > 1 ? atoi(argv[1]) : 100;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 0; i < processes; i++) {
    pid_t pid = fork();
    if (pid < 0) {
      perror("fork");
      return 1;
    }
    if (!pid) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
  }
  fprintf(stderr, "ready %d\n", processes);
  for (;;) pause();
}
