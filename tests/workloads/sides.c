// Functions that leave at once or go on, by each of the 16 conditions of a branch: sides [ROUNDS]
// The ways that leave share nothing with the others, so that the branch may mark their end.
#include "truth.h"

#include <stddef.h>

struct compared {
  struct item it;
  int8_t one, other;
  // When another function took over.
  uint64_t left_ns;
};

uint64_t begins(struct compared *it) {
  it->it.enter_ns = it->it.leave_ns = truth_now();
  return it->it.id;
}

uint64_t goes_on(struct compared *it) {
  uint64_t x = truth_work(it->it.id, 3000);
  it->it.leave_ns = truth_now();
  return x;
}

// The bytes compared are behind the item.
#define AT "40"
_Static_assert(offsetof(struct compared, one) == 40, "the place of what is compared");

#define SIDE(condition)                                                                          \
  PROBED uint64_t if_##condition(struct compared *);                                             \
  __asm__(".text\n.globl if_" #condition "\n.type if_" #condition ",@function\nif_" #condition   \
          ":\n.cfi_startproc\n push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"   \
          " mov %rdi, %rbx\n call begins\n mov " AT "(%rbx), %cl\n cmp " AT "+1(%rbx), %cl\n j"  \
          #condition " 1f\n mov %rbx, %rdi\n call goes_on\n xor %edx, %edx\n pop %rbx\n"         \
          ".cfi_adjust_cfa_offset -8\n ret\n.cfi_adjust_cfa_offset 8\n1: mov %rbx, %rax\n"       \
          " pop %rbx\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n.size if_" #condition       \
          ",.-if_" #condition "\n");

SIDE(o) SIDE(no) SIDE(b) SIDE(ae) SIDE(e) SIDE(ne) SIDE(be) SIDE(a)
SIDE(s) SIDE(ns) SIDE(p) SIDE(np) SIDE(l) SIDE(ge) SIDE(le) SIDE(g)

// A conditional jump to another function.
PROBED uint64_t leaves(struct compared *);
__asm__(".text\n.globl leaves\n.type leaves,@function\nleaves:\n.cfi_startproc\n push %rbx\n"
        ".cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n mov %rdi, %rbx\n call begins\n"
        " mov %rbx, %rdi\n mov " AT "(%rbx), %cl\n cmp " AT "+1(%rbx), %cl\n pop %rbx\n"
        ".cfi_adjust_cfa_offset -8\n jle after\n sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
        " call goes_on\n add $8, %rsp\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n"
        ".size leaves,.-leaves\n");

uint64_t after(struct compared *it) {
  it->left_ns = truth_now();
  return truth_work(it->it.id, 3000);
}

static uint64_t (*const all[])(struct compared *) = {
    if_o,  if_no, if_b, if_ae, if_e, if_ne, if_be, if_a, if_s,
    if_ns, if_p,  if_np, if_l, if_ge, if_le, if_g, leaves};

int main(int argc, char **argv) {
  static const int8_t numbers[] = {-128, -100, -1, 0, 1, 2, 77, 127};
  enum { N = sizeof numbers, FUNCTIONS = sizeof all / sizeof *all };
  uint32_t rounds = truth_arg(argc, argv, 1, 1);
  truth_init();
  uint64_t checksum = 0, id = 0;
  for (uint32_t round = 0; round < rounds; round++)
    for (int function = 0; function < FUNCTIONS; function++)
      for (int n = 0; n < N * N; n++) {
        struct compared it = {.it.id = ++id, .one = numbers[n / N], .other = numbers[n % N]};
        uint64_t before = truth_now();
        checksum ^= all[function](&it);
        uint64_t end = it.left_ns ? it.left_ns : truth_now();
        truth_item(it.it.id, before, it.it.enter_ns, it.it.leave_ns, end);
      }
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)(checksum & 0xffff));
  return 0;
}
