// Instructions that must not be probed: replaced [CHILDREN]
// `handle` begins with a five-byte nop, as -fpatchable-function-entry makes it, has another one as a USDT probe, and keeps
// its item below the stack pointer. It handles items 1 to 50; then CHILDREN are forked, which handle 10 more each; with
// TRUTH_WAIT only after another line on stdin.
#include "truth.h"

#include <sys/wait.h>

uint64_t handle(uint64_t id);
__asm__(".text\n.p2align 12\n.globl handle\n.type handle,@function\nhandle:\n"
        " .byte 0x0f, 0x1f, 0x44, 0, 0\n"
        " lea -8(%rsp), %rdx\n"
        " mov %rdi, (%rdx)\n"
        "990: .byte 0x0f, 0x1f, 0x44, 0, 0\n"
        " mov (%rdx), %rax\n"
        " ret\n.size handle, . - handle\n.p2align 12\n"
        ".pushsection .note.stapsdt, \"\", \"note\"\n.balign 4\n"
        " .4byte 992f - 991f, 994f - 993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n"
        "993: .8byte 990b, _.stapsdt.base, 0\n .asciz \"app\"\n .asciz \"middle\"\n .asciz \"8@%rdi\"\n"
        "994: .balign 4\n.popsection\n"
        ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
        ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n.popsection\n");

// The trap flag is set while an instruction is single-stepped.
uint64_t flags(uint64_t id);
__asm__(".text\n.globl flags\n.type flags,@function\nflags:\n"
        " mov %rdi, %rax\n pushfq\n pop %rdx\n and $0x100, %edx\n add %rdx, %rax\n ret\n"
        ".size flags, . - flags\n");

uint64_t calls(uint64_t id);
__asm__(".text\n.globl calls\n.type calls,@function\ncalls:\n"
        " mov $39, %eax\n syscall\n mov %rdi, %rax\n ret\n.size calls, . - calls\n");

uint64_t fills(void *to, uint64_t id, uint64_t unused, uint64_t bytes);
__asm__(".text\n.globl fills\n.type fills,@function\nfills:\n"
        " rep stosb\n mov %rsi, %rax\n ret\n.size fills, . - fills\n");

static int run(uint64_t from, uint64_t items) {
  char filled[64];
  int bad = 0;
  for (uint64_t id = from; id < from + items; id++)
    bad += handle(id) != id || flags(id) != id || calls(id) != id ||
           fills(filled, id, 0, sizeof filled) != id;
  return bad;
}

int main(int argc, char **argv) {
  uint32_t children = truth_arg(argc, argv, 1, 100);
  truth_init();
  int bad = run(1, 50), go[2], status;
  if (pipe(go)) return 90;
  for (uint32_t child = 1; child <= children; child++) {
    if (fork()) continue;
    char c;
    close(go[1]);
    if (read(go[0], &c, 1)) _exit(91);
    _exit(run(1000 * child, 10) != 0);
  }
  fprintf(stderr, "forked\n");
  if (getenv("TRUTH_WAIT")) getchar();
  close(go[1]);
  while (wait(&status) > 0) bad += status != 0;
  truth_write();
  printf("wrong %d\n", bad);
  return bad != 0;
}
