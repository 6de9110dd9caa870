// A program that samples itself precisely and never ends: samplers
//
// Six events, more than the four counters, half of them with many records for one interrupt. It is killed.
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EVENTS 6
#define PAGES 8

int main(void) {
  for (int i = 0; i < EVENTS; i++) {
    struct perf_event_attr attr = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_HW_CPU_CYCLES,
        .sample_period = 50000 + i,
        .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
        .precise_ip = 2,
        .watermark = i % 2,
        .wakeup_events = 1,
    };
    int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (fd < 0) return perror("perf_event_open"), 1;
    void *ring = mmap(NULL, (1 + PAGES) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) return perror("mmap"), 1;
  }
  puts("sampling");
  fflush(stdout);
  for (volatile uint64_t n = 0;; n++) continue;
}
