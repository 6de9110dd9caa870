// Items that block below different callers: locks [ITEMS]
// Odd items wait for a lock that thread "holder" has: handle -> lock_table -> take. Even ones sleep: handle -> refill ->
// read_page -> pause_for. Locking and sleeping are system calls of functions here, as the C library may keep frame
// pointers or not; every third item calls the library's nanosleep instead: handle -> library -> nanosleep.
#include "truth.h"
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/syscall.h>

static sem_t asked, held;
static volatile int over;
static volatile uint32_t word;
static int handler;

PROBED long call(long number, long a, long b, long c, long d) {
#ifdef FRAMES
  // Else GCC omits the frame pointer in a function without calls, whatever the options.
  __asm__ volatile("" ::"r"(__builtin_frame_address(0)));
#endif
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                   : "rcx", "r11", "memory");
  return result;
}

PROBED void take(void) {
  while (__atomic_load_n(&word, __ATOMIC_ACQUIRE))
    call(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 1, 0);
  __asm__ volatile("");
}

PROBED void lock_table(void) {
  take();
  __asm__ volatile("");
}

PROBED void pause_for(long us) {
  struct timespec t = {0, us * 1000};
  call(SYS_nanosleep, (long)&t, 0, 0, 0);
  __asm__ volatile("");
}

PROBED void read_page(void) {
  pause_for(500);
  __asm__ volatile("");
}

PROBED void refill(void) {
  read_page();
  __asm__ volatile("");
}

PROBED void library(void) {
  struct timespec t = {0, 500 * 1000};
  nanosleep(&t, NULL);
  __asm__ volatile("");
}

static void *holder(void *unused) {
  (void)unused;
  pthread_setname_np(pthread_self(), "holder");
  for (;;) {
    while (sem_wait(&asked)) {
    }
    if (over) return NULL;
    word = 1;
    sem_post(&held);
    truth_until_asleep(handler);
    __atomic_store_n(&word, 0, __ATOMIC_RELEASE);
    call(SYS_futex, (long)&word, FUTEX_WAKE_PRIVATE, 1, 0);
  }
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  if (it->id % 3 == 0) {
    library();
  } else if (it->id % 2) {
    lock_table();
  } else {
    refill();
  }
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 60);
  pthread_t thread;
  truth_init();
  handler = truth_tid();
  sem_init(&asked, 0, 0);
  sem_init(&held, 0, 0);
  pthread_create(&thread, NULL, holder, NULL);
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 2, .name = "locks"};
    uint64_t before = truth_now();
    if (i % 3 && i % 2) {
      sem_post(&asked);
      while (sem_wait(&held)) {
      }
    }
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  over = 1;
  sem_post(&asked);
  pthread_join(thread, NULL);
  truth_write();
  return 0;
}
