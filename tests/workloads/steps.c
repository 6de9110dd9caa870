// Functions without an instruction that the kernel emulates: steps [ROUNDS]
// Their results tell whether each instruction did what it does alone. Prints the number of wrong ones.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define F(name, body)                                                                            \
  uint64_t name(uint64_t id);                                                                    \
  __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n" body \
          "\n.cfi_endproc\n.size " #name ",.-" #name "\n");

F(moved, "mov %rdi, %rax\n ret")
F(cut, "mov %edi, %eax\n ret")
F(negative, "mov $-5, %rax\n add %rdi, %rax\n ret")
F(large, "mov $0xfffffffe, %eax\n add %rdi, %rax\n rep ret")
F(address, "lea 8(%rdi), %rax\n ret")
F(half_address, "lea -8(%rdi), %eax\n ret")
// The flags of zero: equal and even, without carry, sign and overflow.
F(zero, "xor %eax, %eax\n setz %al\n setp %cl\n lea (%rdi,%rax), %rax\n movzbl %cl, %ecx\n add %rcx, %rax\n ret")
F(no_carry, "xor %ecx, %ecx\n mov %rdi, %rax\n adc $0, %rax\n ret")
F(no_sign, "xor %ecx, %ecx\n sets %cl\n seto %dl\n movzbl %dl, %edx\n lea (%rdi,%rcx), %rax\n add %rdx, %rax\n ret")
F(landing, "endbr64\n neg %rdi\n mov %rdi, %rax\n ret")
F(two_ends, "test $1, %dil\n jnz 1f\n mov %rdi, %rax\n ret\n1: xor %eax, %eax\n ret")

// Calls with flags that are not those of zero, and with numbers that need 64 bits.
static uint64_t call(uint64_t (*f)(uint64_t), uint64_t id) {
  uint64_t result;
  __asm__ volatile("movabs $0x7fffffffffffffff, %%rcx\n inc %%rcx\n stc\n call *%[f]"
                   : "=a"(result), "+D"(id)
                   : [f] "r"(f)
                   : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory");
  return result;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 50, wrong = 0;
  for (int round = 0; round < rounds; round++) {
    uint64_t id = 0x1234567800000000ull + (uint64_t)round;
    wrong += call(moved, id) != id;
    wrong += call(cut, id) != (uint32_t)id;
    wrong += call(negative, id) != id - 5;
    wrong += call(large, id) != id + 0xfffffffe;
    wrong += call(address, id) != id + 8;
    wrong += call(half_address, id) != (uint32_t)(id - 8);
    wrong += call(zero, id) != id + 2;
    wrong += call(no_carry, id) != id;
    wrong += call(no_sign, id) != id;
    wrong += call(landing, id) != -id;
    wrong += call(two_ends, id) != (id & 1 ? 0 : id);
  }
  printf("wrong %d\n", wrong);
  return 0;
}
